# Two commands are enough: `make train` trains an agent, `make test` runs the tests. Each sets up what it needs first.
.PHONY: train test test-all test-python lint build setup wheel bundle golden all-games help
.DEFAULT_GOAL := help

gpu := $(shell scripts/has_gpu.sh && echo 1 || echo 0)
cargo_flags := --release --locked

# Without a GPU, the default is a task that is learned in minutes; with one, an Atari game.
GAME ?= $(if $(filter 1,$(gpu)),boxing,catch)
# Without a PRESET, `meme` chooses one.
PRESET ?=
ARGS ?=

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile | expand -t 18

train: build ## train on GAME= with PRESET= and ARGS=; run it again to resume
	target/release/meme train $(GAME) $(if $(PRESET),--preset $(PRESET)) $(ARGS)

test: build ## run the tests, except the long ones
	cargo test --workspace --all-targets $(cargo_flags)
	.venv/bin/python -B -m unittest discover --start-directory bench
	scripts/test_browser.sh
	@scripts/cluster_test.sh

test-all: build ## run all tests at full length: 57 games, minutes of load
	MEME_TEST_ALL=1 cargo test --workspace --all-targets $(cargo_flags)
	.venv/bin/python -B -m unittest discover --start-directory bench
	scripts/test_browser.sh
	@MEME_TEST_ALL=1 scripts/cluster_test.sh
	.venv/bin/python -B tests/cluster/network.py

test-python: wheel ## install the wheel in a virtual environment without the checkout, and test it there
	@scripts/test_python.sh

lint: setup ## check formatting, clippy and documentation warnings
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features agent/gpu-tests $(cargo_flags) -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps $(cargo_flags)

build: setup ## set up and build target/release/meme
	@cargo build --workspace $(cargo_flags)

setup:
	@scripts/setup.sh

wheel: setup ## build dist/meme_rl-*.whl, which pip installs on machines without Rust
	@scripts/wheel.sh

bundle: setup ## build dist/: the wheel's contents with benchmarks and GPU checks, for a machine without a network
	@scripts/bundle.sh

golden: ## regenerate the golden files with PyTorch and compare
	@scripts/golden.sh

all-games: build ## train every game for SECONDS_EACH=120, JOBS=1 at a time, with PRESET=cpu, and write a table to docs/results
	@PRESET=$(or $(PRESET),cpu) scripts/all_games.sh $(GAMES)
