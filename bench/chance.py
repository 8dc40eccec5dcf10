"""Measures how much of an Atari game random actions discover; needs only the emulator.

    .venv/bin/python bench/chance.py montezuma_revenge --ram 3 42 43 --score 100 [--frames 17200000] [--processes 2] \
        [--seed 1]

Draws one of all 18 actions every 4 frames, after up to 30 no-ops and without sticky actions; an episode ends when the
game is over. Prints how many positions (values at the given RAM addresses after an action) were seen as the frames
grow, and how many episodes reached the given score: the baseline for an exploring agent (bench/coverage.sh).
"""

import argparse
import multiprocessing

import numpy as np

ACTIONS, REPEAT, NO_OPS = 18, 4, 30


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("game")
    parser.add_argument("--ram", type=int, nargs="+", required=True, help="RAM addresses that define the position")
    parser.add_argument("--score", type=float, required=True, help="score from which an episode counts as a find")
    parser.add_argument("--frames", type=int, default=1_000_000, help="frames of all processes together")
    parser.add_argument("--processes", type=int, default=2, help="processes; process i uses seed + i")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    share = args.frames // args.processes
    work = [(args.game, args.ram, args.score, share, args.seed + process) for process in range(args.processes)]
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        seen, episodes, finds = zip(*pool.starmap(play, work))
    # The first address is the area, as for `actor/positions_in_first_area`.
    first_area = next(iter(seen[0]))[0]
    print("| frames | positions so far | in the first area |\n|---:|---:|---:|")
    for eighth in range(1, 9):
        so_far = {position for one in seen for position, frame in one.items() if frame <= share * eighth / 8}
        in_first = sum(position[0] == first_area for position in so_far)
        print(f"| {args.frames * eighth // 8} | {len(so_far)} | {in_first} |")
    visited = np.concatenate(episodes)
    found = f"{sum(finds)} scored {args.score:g} or more"
    print(f"{len(visited)} episodes, {visited.mean():.0f} positions per episode, {found}")


def play(game, ram, least_score, frames_to_play, seed):
    """The frame at which each position was first seen, the positions per episode, and the number of finds."""
    # Imported here so that importing this file needs no emulator.
    import ale_py
    import ale_py.roms

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(ale_py.roms.get_rom_path(game))
    actions = [ale_py.Action(i) for i in range(ACTIONS)]
    random = np.random.default_rng(seed)
    seen, episodes, finds, frames = {}, [], 0, 0
    while frames < frames_to_play:
        ale.reset_game()
        for _ in range(random.integers(NO_OPS + 1)):
            ale.act(actions[0])
        positions, score = set(), 0
        while not ale.game_over():
            action = actions[random.integers(ACTIONS)]
            for _ in range(REPEAT):
                score += ale.act(action)
                frames += 1
                if ale.game_over():
                    break
            memory = ale.getRAM()
            position = tuple(int(memory[address]) for address in ram)
            positions.add(position)
            seen.setdefault(position, frames)
        episodes.append(len(positions))
        finds += score >= least_score
    return seen, episodes, finds


if __name__ == "__main__":
    main()
