"""Serving engines that are started to be measured: ways to start them, a file each, and what their logs say."""
