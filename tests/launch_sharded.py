"""Gradients of sharded losses (FSDP2, gloo) against the whole model's; started by torchrun."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))

from test_objectives import carot_objective, gradients, instructions, parallel  # noqa: E402
from test_preferences import GAMMAS, collated, encoded  # noqa: E402
from tiny import tiny_model  # noqa: E402

from carot.models.anatomy import dissect  # noqa: E402
from carot.training.objectives import Dco, Sft  # noqa: E402

if __name__ == "__main__":
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    trained = [
        (carot_objective([1]), parallel()),
        (Sft(), instructions()),
        (Dco(1.0, GAMMAS), collated(encoded(2, candidates=4))),  # two passes, one from a cache
    ]
    for objective, batch in trained:
        whole = dissect(copy.deepcopy(tiny_model("llama")).train())
        expected = gradients(whole, objective.loss(whole, batch))
        model = copy.deepcopy(tiny_model("llama")).train()
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        sharded = dissect(model)
        for _ in range(2):  # the second pass meets what the first has left
            model.zero_grad()  # while its parameters are sharded
            found = gradients(sharded, objective.loss(sharded, batch))
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            assert torch.allclose(found[name].full_tensor(), gradient, atol=1e-6), name
        print(f"{objective.name}: {len(found)} gradients agree")
    dist.destroy_process_group()
