"""The modes of running a model: inference, training, phases, generation; a file each, with its knobs."""
