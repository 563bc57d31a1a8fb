"""The pages of the service: searches in a browser, without an application in JavaScript."""
