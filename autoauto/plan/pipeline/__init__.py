"""The optimal pipeline: blocks between legal cuts, a probe, and a search for the best bounds."""
