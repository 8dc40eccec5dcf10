"""Makes and steps environments at the request of the Rust side."""

import json
import os
import pickle
import traceback

import numpy as np

from . import protocol
from .memory import LAST, PICTURE_SIZE, SharedMemory
from .protocol import Connection, Foreign, Refused


def serve(connection, memory):
    """Answers requests until it has to close or the parent hangs up."""
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
    """Returns the exception and its traceback outside this package as one line."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = [
        f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.dirname(os.path.abspath(frame.filename)) != here
    ]
    text = " ".join(f"{type(error).__name__}: {error}".splitlines())
    return f"{text} (at {', '.join(places[-4:])})" if places else text


class Worker:
    """The environments of this process and their shared memory."""

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
            protocol.RENDER: self.render,
        }

    def answer(self, request, group, slot, environment, content):
        """Handles a request and returns the content of the reply."""
        answer = self.answers.get(request)
        if answer is None:
            raise ValueError(f"unknown request {request}")
        return answer(group, slot, environment, content)

    def open(self, group, slot, environment, content):
        """Makes the environments and describes them."""
        settings = json.loads(bytes(content))
        if settings["protocol"] != protocol.VERSION:
            raise Refused(
                f"python/meme_worker speaks version {protocol.VERSION} of the protocol and the meme binary version "
                f"{settings['protocol']}: they are from different commits; `make build` builds the binary of this "
                "checkout"
            )
        make = group_maker(settings["environment"]["kind"])
        first, count = settings["first_index"], settings["environments"]
        self.group_size = size = count // settings["groups"]
        self.environments = []
        for at in range(0, count, size):
            self.environments += make(settings["environment"], settings["seed"], first + at, size)
        self.reports_ram = bool(settings["environment"].get("ram"))
        env = self.environments[0]
        hello = {
            "magic": protocol.MAGIC,
            "protocol": protocol.VERSION,
            "observation_shape": list(env.shape),
            "observation_kind": kind_of(env.dtype),
            "observation_parts": [
                {"name": part.name, "shape": list(part.array.shape), "kind": kind_of(part.array.dtype)}
                for part in env.parts
            ],
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
        memory, first = self.memory, group * self.group_size
        if (vector := self.environments[first].vector) is not None:
            vector.reset(memory.episode(first))
        for i in range(first, first + self.group_size):
            env = self.environments[i]
            env.begin(memory.episode(i), memory.observations[i][slot])
            memory.record(i, 0.0, 0.0, env.frames, 0, env.episode, 0)

    def step(self, group, slot, environment, content):
        """Steps every environment of a group and begins the next episode where one ends."""
        memory, first = self.memory, group * self.group_size
        ended = []
        actions = memory.actions(first, self.group_size)
        if (vector := self.environments[first].vector) is not None:
            vector.step(actions)
        for i, action in enumerate(actions, first):
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
            # Beginning an episode may take much longer than a step, so the parent applies another time limit.
            self.connection.reply(protocol.BEGINNING)
        for i, reward, ending in ended:
            env = self.environments[i]
            score, frames = env.score, env.frames
            env.begin(env.episode + 1, memory.observations[i][slot])
            memory.record(i, reward, score, frames, ending, env.episode, env.frames)

    def save(self, group, slot, environment, content):
        """Saves one environment and its current observation."""
        observation = self.memory.observations[environment][slot].tobytes()
        return pickle.dumps((self.environments[environment].save(), observation))

    def restore(self, group, slot, environment, content):
        """Restores one environment."""
        saved, observation = pickle.loads(content)
        env, out = self.environments[environment], self.memory.observations[environment][slot]
        env.restore(saved, out)
        out[...] = np.frombuffer(observation, out.dtype).reshape(out.shape)
        self.memory.record(environment, 0.0, env.score, env.frames, 0, env.episode, 0)

    def render(self, group, slot, environment, content):
        """Returns height, width and pixels of one environment's picture."""
        picture = self.environments[environment].render(last=slot == LAST)
        return PICTURE_SIZE.pack(*picture.shape[:2]) + picture.tobytes()

    def close(self, group, slot, environment, content):
        """Closes all environments."""
        for env in self.environments:
            env.close()


def kind_of(dtype):
    """Returns the protocol's name of an element type."""
    return "u8" if dtype == np.uint8 else "f32"


def group_maker(kind):
    """Returns the function that makes environments of a kind, importing only its own dependencies."""
    if kind == "ale":
        from .ale import make_group
    elif kind == "gym":
        from .gym import make_group
    else:
        raise Refused(f"unknown kind of environment {kind}")
    return make_group
