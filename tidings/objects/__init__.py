"""File stores: directories of files, and the marker by which a process knows the right one."""
