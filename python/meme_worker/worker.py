"""Makes environments and steps them as the Rust side asks."""

import json
import os
import pickle
import traceback

import numpy as np

from . import protocol
from .memory import LAST, SharedMemory
from .protocol import Connection, Foreign, Refused


def serve(connection, memory):
    """Answers requests until told to close or until the parent is gone."""
    connection = Connection(connection)
    worker = Worker(memory, connection)
    while (request := connection.next()) is not None:
        try:
            content = worker.answer(*request)
        except Refused as refusal:
            connection.reply(protocol.REFUSED, str(refusal).encode())
        except Foreign as foreign:
            connection.reply(protocol.FOREIGN, str(foreign).encode())
        except Exception as error:
            connection.reply(protocol.FAILED, describe(error).encode())
        else:
            connection.reply(protocol.DONE, content or b"")
            if request[0] == protocol.CLOSE:
                return


def describe(error):
    """One line: the exception, and the places it came through outside of this package."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = [
        f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.dirname(os.path.abspath(frame.filename)) != here
    ]
    text = " ".join(f"{type(error).__name__}: {error}".splitlines())
    return f"{text} (at {', '.join(places[-4:])})" if places else text


class Worker:
    """The environments of this process, and the memory they are seen through."""

    def __init__(self, descriptor, connection):
        self.descriptor = descriptor
        self.connection = connection
        self.environments = []
        self.memory = None
        self.answers = {
            protocol.OPEN: self.open,
            protocol.ATTACH: self.attach,
            protocol.RESET: self.reset,
            protocol.STEP: self.step,
            protocol.SAVE: self.save,
            protocol.RESTORE: self.restore,
            protocol.CLOSE: self.close,
        }

    def answer(self, request, group, slot, environment, content):
        """Does what a request asks for; returns what the reply is to carry."""
        answer = self.answers.get(request)
        if answer is None:
            raise ValueError(f"there is no request {request}")
        return answer(group, slot, environment, content)

    def open(self, group, slot, environment, content):
        """Makes the environments and introduces them."""
        settings = json.loads(bytes(content))
        if settings["protocol"] != protocol.VERSION:
            raise Refused(
                f"python/meme_worker speaks version {protocol.VERSION} of the protocol and the meme binary "
                f"{settings['protocol']}: they are of different commits; `make build` builds the binary that belongs "
                "to the checkout"
            )
        make = environment_class(settings["environment"]["kind"])
        first, count = settings["first_index"], settings["environments"]
        self.environments = [make(settings["environment"], settings["seed"], first + i) for i in range(count)]
        self.group_size = count // settings["groups"]
        self.reports_ram = bool(settings["environment"].get("ram"))
        env = self.environments[0]
        hello = {
            "magic": protocol.MAGIC,
            "protocol": protocol.VERSION,
            "observation_shape": list(env.shape),
            "observation_kind": "u8" if env.dtype == np.uint8 else "f32",
            "action_names": env.action_names,
            "frames_per_step": env.frames_per_step,
        }
        return json.dumps(hello).encode()

    def attach(self, group, slot, environment, content):
        """Maps the shared memory."""
        env = self.environments[0]
        self.memory = SharedMemory(self.descriptor, json.loads(bytes(content)), env.shape, env.dtype)

    def reset(self, group, slot, environment, content):
        """Begins an episode in every environment of a group."""
        memory = self.memory
        for i in range(group * self.group_size, (group + 1) * self.group_size):
            env = self.environments[i]
            env.begin(memory.episode(i), memory.observations[i][slot])
            memory.record(i, 0.0, 0.0, env.frames, 0, env.episode, 0)

    def step(self, group, slot, environment, content):
        """Steps every environment of a group; where an episode ends, the next one begins."""
        memory, first = self.memory, group * self.group_size
        ended = []
        for i, action in enumerate(memory.actions(first, self.group_size), first):
            env = self.environments[i]
            observations = memory.observations[i]
            out = observations[slot]
            reward, ending = env.step(action, out)
            if self.reports_ram:
                env.read_ram(memory.ram[i])
            if ending:
                observations[LAST][...] = out
                ended.append((i, reward, ending))
            else:
                memory.record(i, reward, env.score, env.frames, 0, env.episode, 0)
        if ended:
            # To begin an episode may take much longer than a step; whoever waits is told.
            self.connection.reply(protocol.BEGINNING)
        for i, reward, ending in ended:
            env = self.environments[i]
            score, frames = env.score, env.frames
            env.begin(env.episode + 1, memory.observations[i][slot])
            memory.record(i, reward, score, frames, ending, env.episode, env.frames)

    def save(self, group, slot, environment, content):
        """Saves one environment and the observation it shows."""
        observation = self.memory.observations[environment][slot].tobytes()
        return pickle.dumps((self.environments[environment].save(), observation))

    def restore(self, group, slot, environment, content):
        """Goes on from a saved environment."""
        saved, observation = pickle.loads(content)
        env, out = self.environments[environment], self.memory.observations[environment][slot]
        env.restore(saved, out)
        out[...] = np.frombuffer(observation, out.dtype).reshape(out.shape)
        self.memory.record(environment, 0.0, env.score, env.frames, 0, env.episode, 0)

    def close(self, group, slot, environment, content):
        """Closes all environments."""
        for env in self.environments:
            env.close()


def environment_class(kind):
    """The class of environments of a kind; only what it needs is imported."""
    if kind == "ale":
        from .ale import AleEnvironment

        return AleEnvironment
    if kind == "gym":
        from .gym import GymEnvironment

        return GymEnvironment
    raise Refused(f"meme_worker knows no environments of kind {kind}")
