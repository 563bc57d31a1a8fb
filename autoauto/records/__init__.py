"""The nouns of autoauto: frozen values that rooms share. Imports nothing else of ours."""
