"""File stores: directories or buckets of files, and the marker by which a process recognises the right one."""
