"""The rooms that know Hugging Face and nnsight."""

from carot.models.calibration import calibrate_guard
from carot.models.carot_model import CarotModel
from carot.models.fitting import fit_aligner
from carot.models.loading import load_model
from carot.models.steering import Steering
from carot.models.view import AlignmentView
from carot.models.wrapping import wrap

__all__ = [
    "AlignmentView",
    "CarotModel",
    "Steering",
    "calibrate_guard",
    "fit_aligner",
    "load_model",
    "wrap",
]
