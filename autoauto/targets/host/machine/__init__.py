"""What this machine is: cores, memory, clock, links between processes, and the speed of a core right now."""
