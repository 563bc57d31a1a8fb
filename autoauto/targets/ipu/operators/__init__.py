"""The costs of every ONNX operator on an IPU, forward and backward.

To add an operator, edit one file of this package. Its name goes into the table `COST_RULES` at the end of the file that
fits, with a rule that is there already or with a new function `OperatorContext -> OperatorCost`:

    elementwise.py     one pass over the output: only a line in `_LOOPS` with its inner loops; and, where the derivative
                       is cheaper than those loops and two products, a line in `_DERIVATIVE_LOOPS`
    products.py        matrix products, attention, recurrent cells
    convolutions.py    windows that slide over a field: convolutions and pooling
    rows.py            normalisation, softmax and reduction along rows
    data_movement.py   relayouts, slices, interpolation; rows of a table that are read or written by indices
    sequences.py       steps that depend on each other: sorts and scans along an axis, recurrences
    signals.py         Fourier transforms
    contrib.py         what ONNX Runtime's optimiser fuses, as the standard operators that are in it
    quantised.py       what its quantiser writes
    classic.py         trees, linear models and encoders of `ai.onnx.ml`

The backward pass follows from the rule: an operator that reuses a rule gets that rule's backward pass, and a new rule
costs backward what it costs forward. A backward pass of another kind is a second edit: a function in `backward.py`, and
its entry by the rule in the table `_BACKWARD_RULES` there. An operator that is in no table is priced as elementwise,
which is said wherever its model is opened (`registry.py`). `studies/operator_cases.py` has shapes of every operator: a
test looks there for those of a new one, and compares its price with what no device can do faster.

The names of codelets in a cost lead to their code size in `memory.py`: a name without an entry there counts as a
generated elementwise codelet.
"""
