#!/bin/sh
# Succeeds when this machine has an NVIDIA GPU whose driver answers.
nvidia-smi --list-gpus 2>/dev/null | grep -q '^GPU '
