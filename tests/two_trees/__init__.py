"""Two checkouts compared by their command lines and by the files that their runs leave."""
