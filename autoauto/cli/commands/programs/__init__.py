"""Commands that show orders of micro-batches, phases, and the programs of source documents."""
