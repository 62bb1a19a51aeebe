"""Training frameworks resume bit for bit through their adapters, after a notice, in the middle of an epoch."""

import types

import pytest

from trimtab_runtime.checkpoint.checkpointer import Checkpointer
from trimtab_runtime.checkpoint.integrations.accelerate_parts import accelerate_parts
from trimtab_runtime.checkpoint.integrations.lightning_callback import lightning_callback
from trimtab_runtime.checkpoint.integrations.transformers_callback import TransformersCallback
from trimtab_runtime.checkpoint.loader import ResumableLoader
from trimtab_runtime.checkpoint.settings import CheckpointSettings
from trimtab_runtime.errors import UsageError
from trimtab_runtime.notice.notice import NoticeBoard

STEPS = 14
STOP_AT = 8
"""In the second epoch of six batches."""
SETTINGS = CheckpointSettings(every_s=0.0, asynchronous=False, margin_s=0.0)


@pytest.fixture
def job(torch):
    """A small model with dropout on 24 points, and the losses it has had."""
    nn = torch.nn

    class Points:
        def __len__(self):
            return 24

        def __getitem__(self, index):
            point = torch.tensor([index / 24.0, 1.0]) + 0.01 * torch.randn(2)
            return {"inputs": point, "labels": point.sum().reshape(1)}

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(2, 16), nn.Dropout(0.3), nn.Tanh(), nn.Linear(16, 1))

        def forward(self, inputs, labels=None):
            answer = self.layers(inputs)
            return {"loss": nn.functional.mse_loss(answer, labels), "logits": answer}

    def fresh():
        torch.manual_seed(3)
        return Model(), ResumableLoader(Points(), 4, seed=5)

    return fresh


def optional(name):
    return pytest.importorskip(name, reason=f"{name} is not installed; it is in requirements/torch.txt")


@pytest.mark.filterwarnings("ignore")
def test_the_hugging_face_trainer_resumes_bit_for_bit(job, torch, memory_path):
    transformers = optional("transformers")

    def train(folder, stop_at=None):
        model, loader = job()
        losses, board = {}, NoticeBoard()
        callback = TransformersCallback(folder, SETTINGS, board=board)

        class Trainer(transformers.Trainer):
            def get_train_dataloader(self):
                return loader

            def training_step(self, model, inputs, num_items_in_batch=None):
                loss = super().training_step(model, inputs, num_items_in_batch)
                losses[self.state.global_step] = loss.item()
                if self.state.global_step == stop_at:
                    board.interrupt(0.0001)
                return loss

        arguments = transformers.TrainingArguments(
            output_dir=str(memory_path / "unused"),
            max_steps=STEPS,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            logging_strategy="no",
            seed=3,
        )
        Trainer(model=model, args=arguments, callbacks=[callback]).train()
        return losses, callback

    unbroken, _ = train(memory_path / "unbroken")
    before, stopped = train(memory_path / "broken", STOP_AT)
    after, resumed = train(memory_path / "broken")

    assert stopped.exit_code == 75
    assert resumed.exit_code == 0
    assert 0 < resumed.resumed.step <= STOP_AT + 1
    assert before | after == unbroken


@pytest.mark.filterwarnings("ignore")
def test_lightning_resumes_bit_for_bit(job, torch, memory_path):
    lightning = optional("lightning.pytorch")

    def train(folder, stop_at=None):
        model, loader = job()
        losses, board = {}, NoticeBoard()
        callback = lightning_callback(folder, SETTINGS, board=board)

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = model

            def training_step(self, batch, batch_idx):
                loss = self.model(**batch)["loss"]
                losses[self.global_step] = loss.item()
                if self.global_step == stop_at:
                    board.interrupt(0.0001)
                return loss

            def configure_optimizers(self):
                optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
                return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]

        trainer = lightning.Trainer(
            max_steps=STEPS,
            callbacks=[callback],
            enable_checkpointing=False,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
            devices=1,
        )
        trainer.fit(Module(), loader)
        return losses, callback

    unbroken, _ = train(memory_path / "unbroken")
    before, stopped = train(memory_path / "broken", STOP_AT)
    after, resumed = train(memory_path / "broken")

    assert stopped.exit_code == 75
    assert 0 < resumed.resumed.step <= STOP_AT + 1
    assert before | after == unbroken


@pytest.mark.filterwarnings("ignore")
def test_an_accelerate_job_resumes_bit_for_bit(job, torch, memory_path):
    accelerate = optional("accelerate")

    def train(folder, steps):
        accelerator = accelerate.Accelerator(cpu=True)
        model, loader = job()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.7)
        model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
        parts = accelerate_parts(accelerator, model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
        losses, batches = {}, iter(loader)
        with Checkpointer(folder, parts, SETTINGS, board=NoticeBoard()) as checkpointer:
            checkpointer.resume()
            batches = iter(loader)
            for step in range(checkpointer.next_step, steps):
                batch = next(batches, None)
                if batch is None:
                    batches = iter(loader)
                    batch = next(batches)
                loss = model(**batch)["loss"]
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                losses[step] = loss.item()
                checkpointer.step_done(step)
        return losses

    unbroken = train(memory_path / "unbroken", STEPS)
    before = train(memory_path / "broken", STOP_AT)

    assert before | train(memory_path / "broken", STEPS) == unbroken


def test_accelerate_wrappers_are_taken_off_and_the_scaler_is_kept():
    inner, scaler = object(), object()
    wrapped = type("AcceleratedOptimizer", (), {"optimizer": inner})()

    parts = accelerate_parts(types.SimpleNamespace(scaler=scaler), optimizer=wrapped)

    assert parts == {"optimizer": inner, "scaler": scaler}


def test_a_name_that_the_accelerator_uses_is_refused():
    with pytest.raises(UsageError, match="choose another name"):
        accelerate_parts(types.SimpleNamespace(scaler=None), scaler=object())


def test_the_trainer_callback_ignores_events_that_do_not_concern_it():
    callback = TransformersCallback("unused")

    assert callback.on_log(None, None, None, logs={}) is None
    with pytest.raises(AttributeError):
        _ = callback.state_dict
