"""Pages and tables for people, made from the files of run folders."""
