"""A client of the package with the types that its names promise; mypy checks it, also against the installed wheel."""

import autoauto
from autoauto import BadInput, Infeasible, MissingExtra, Objective, Strategy

STORAGE = "sqlite:///studies/client.db"


def fastest(model: str, n_devices: tuple[int, ...]) -> autoauto.Trial | None:
    """The best configuration, None where nothing fits."""
    space = autoauto.SearchSpace(n_ipu=n_devices, batch_size=(1, 2), strategy=(Strategy.PIPELINE,))
    try:
        return autoauto.search(
            model, "bow-2000", space, objective=Objective.LATENCY, storage=STORAGE, study_name="client"
        )
    except Infeasible as nothing:
        print(nothing.excess_bytes)
    except (BadInput, MissingExtra) as error:
        print(error)
    return None


def client() -> int:
    """A number of samples from every part of an answer."""
    best = fastest("resnet50", (1, 2))
    if best is None or best.timeline is None:
        return 0
    n_trials = len(autoauto.trials_dataframe("client", STORAGE))
    plan: autoauto.Plan | autoauto.PhasedPlan = best.plan
    period_cycles: float = best.timeline.period_cycles
    shown: str | None = best._repr_html_()
    print(plan.partition, period_cycles, shown)
    return n_trials * best.knobs.batch_size
