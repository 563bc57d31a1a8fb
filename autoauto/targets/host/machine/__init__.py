"""This machine: its cores, memory and clock, the links between its processes, and the present speed of a core."""
