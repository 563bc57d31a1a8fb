"""Files that other programs of loads write, one a file of this folder."""
