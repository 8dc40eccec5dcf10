# Two commands do all: `make train` runs the main job, `make test` passes the tests. Each sets up what it needs first.
.PHONY: train test test-all lint build setup bundle golden all-games help
.DEFAULT_GOAL := help

cuda := $(if $(MEME_CUDA),$(MEME_CUDA),$(shell scripts/has_gpu.sh && echo 1 || echo 0))
cargo_flags := --release --locked $(if $(filter 1,$(cuda)),--features meme/cuda)

# Without a GPU the default is a task that is learned in minutes; a GPU gets a real game.
GAME ?= $(if $(filter 1,$(cuda)),pong,catch)
# Without a PRESET, `meme` takes one that fits.
PRESET ?=
ARGS ?=

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile | expand -t 18

train: build ## train on GAME= with PRESET= and ARGS=; the same again goes on
	target/release/meme train $(GAME) $(if $(PRESET),--preset $(PRESET)) $(ARGS)

test: setup ## all tests but the long ones
	cargo test --workspace --all-targets $(cargo_flags)
	.venv/bin/python -B -m unittest discover --start-directory bench

test-all: setup ## all tests at full length: all 57 games, minutes of load
	MEME_TEST_ALL=1 cargo test --workspace --all-targets $(cargo_flags)
	.venv/bin/python -B -m unittest discover --start-directory bench

lint: setup ## formatting, clippy and documentation warnings
	cargo fmt --all --check
	cargo clippy --workspace --all-targets $(cargo_flags) -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps $(cargo_flags)

build: setup ## set-up and target/release/meme, nothing else
	@cargo build --workspace $(cargo_flags)

setup:
	@scripts/setup.sh

bundle: setup ## dist/: a folder and a tarball for a GPU machine without Rust
	@scripts/bundle.sh

golden: ## regenerate the golden files with PyTorch and compare
	@scripts/golden.sh

all-games: build ## train every game for SECONDS_EACH=120, JOBS=1 at a time, with PRESET=cpu; a table in docs/results
	@PRESET=$(or $(PRESET),cpu) scripts/all_games.sh $(GAMES)
