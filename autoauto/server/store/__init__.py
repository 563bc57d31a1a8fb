"""What the service keeps in its database: users, searches, their queue, uploaded files."""
