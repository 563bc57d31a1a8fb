"""The nouns of autoauto: frozen values that every room shares. Imports nothing else of ours."""
