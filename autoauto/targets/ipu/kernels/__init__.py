"""Cycles of one tile: codelets on six workers, copies and exchange."""
