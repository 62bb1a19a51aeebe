"""What the GPUs of this machine do while a program runs: NVML in process, standard library alone."""

from trimtab_runtime.profile.observation import Profile

profile = Profile

__all__ = ["Profile", "profile"]
