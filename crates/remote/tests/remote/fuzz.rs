//! Random and mutated messages: no panic, no memory that stays.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use envs::WorkerConfig;
use prost::Message;
use rand::{RngExt, SeedableRng};
use remote::proto::actor_message::Kind;
use remote::proto::learner_message::Kind as Reply;
use remote::proto::{
    Act, ActorMessage, ChoosePolicy, EnvironmentStep, LearnerMessage, Operation, PolicyReport, StatePart,
};
use replay::FrameEncoder;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::refusals::hello;
use crate::support::{Actors, Learner, config, on_loopback, task, until};

/// Steps of a conversation.
const STEPS: usize = 40;
/// Maximum number of changed messages per stream: after the first that is invalid, the rest is not read.
const CHANGED: usize = 10;
/// Streams of a connection.
const PER_CONNECTION: usize = 50;

type Random = agent::Random;

/// Sends bytes as they are, as no client does, and counts the answers to messages.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = LearnerMessage;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        *self
    }
    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;
    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = LearnerMessage;
    type Error = Status;
    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<LearnerMessage>, Status> {
        LearnerMessage::decode(buffer).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

/// A step as an actor writes it.
pub fn append() -> Operation {
    Operation { kind: 0, action: 1, probability: 0.5, discount: 1.0, ..Operation::default() }
}

/// Messages as an actor with two environments in two groups sends them.
pub fn conversation() -> Vec<ActorMessage> {
    let task = task("catch");
    let config = WorkerConfig::new(task.environment, task.python, task.package);
    let mut environments = envs::make(&config).unwrap();
    environments.reset().unwrap();
    let bytes = environments.spec().observation_bytes();
    let mut observation = vec![0; bytes];
    environments.observation(0, 0, &mut observation);
    let mut encoder = FrameEncoder::new(2, bytes).unwrap();
    let mut messages = vec![Kind::Hello(hello())];
    messages.extend((0..2).map(|_| Kind::ChoosePolicy(ChoosePolicy::default())));
    for step in 0..STEPS {
        let group = step % 2;
        encoder.push(group, &observation).unwrap();
        let frames = encoder.finish().unwrap();
        let begin = Operation { kind: 1, ..Operation::default() };
        let operations = match step {
            0 | 1 => Vec::new(),
            2 | 3 => vec![begin, append()],
            _ => vec![append()],
        };
        let environments = vec![EnvironmentStep { operations, first: step < 2, ..EnvironmentStep::default() }];
        let (group, streams) = (group as u32, frames.streams.to_vec());
        messages.push(Kind::Act(Act { group, environments, frames: frames.bytes, streams, ..Act::default() }));
    }
    messages.push(Kind::State(StatePart { part: vec![1; 100], last: true }));
    let reports = vec![PolicyReport { policy: 1, score: Some(1.0), environment: 0 }];
    messages.push(Kind::ChoosePolicy(ChoosePolicy { reports, environment: 0 }));
    messages.into_iter().map(|kind| ActorMessage { kind: Some(kind) }).collect()
}

/// A conversation of which the `first` messages are as they should be, and the others random or changed.
fn mutated(random: &mut Random, conversation: &[Vec<u8>], first: usize) -> Vec<Vec<u8>> {
    let mut messages: Vec<Vec<u8>> = conversation.iter().take(first + CHANGED).cloned().collect();
    for message in &mut messages[first..] {
        match random.random_range(0..6) {
            0 => {
                let length = random.random_range(0..300);
                *message = (0..length).map(|_| random.random()).collect();
            }
            1 => message.truncate(random.random_range(0..=message.len())),
            2 => message.clone_from(&conversation[random.random_range(0..conversation.len())]),
            _ => {
                for _ in 0..random.random_range(1..4) {
                    if !message.is_empty() {
                        let at = random.random_range(0..message.len());
                        message[at] = random.random();
                    }
                }
            }
        }
    }
    messages
}

/// Sends messages on a stream until it ends; returns how many were answered.
async fn converse(channel: &Channel, messages: Vec<Vec<u8>>) -> usize {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let path = "/meme.actors.Actors/Play".parse().unwrap();
    let request = Request::new(tokio_stream::iter(messages));
    let Ok(replies) = client.streaming(request, path, Raw).await else { return 0 };
    let (mut replies, mut answered) = (replies.into_inner(), 0);
    while let Ok(Some(reply)) = replies.message().await {
        answered += usize::from(!matches!(reply.kind, Some(Reply::Waiting(_))));
    }
    answered
}

/// Resident memory of this process.
fn memory() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Counts the random and mutated messages that the listener reads: those it answers, and those it refuses.
#[test]
fn random_and_mutated_messages_neither_panic_nor_take_memory() {
    let wanted = if std::env::var_os("MEME_TEST_ALL").is_some() { 1_000_000 } else { 4_000 };
    let scratch = tempfile::tempdir().unwrap();
    // Without local actors, which would leave the messages little of the processor.
    let settings = config(&["run.frames=1000000000000", "actors.environments=0"]);
    let learner = Learner::start(scratch.path(), &settings, on_loopback());
    let serves_those_who_behave = || {
        let before = learner.steps();
        let actors = Actors::plain(&learner, 2);
        until("actors play", || learner.steps() > before + 20);
        actors.stop.request();
        actors.end().unwrap();
    };
    serves_those_who_behave();
    let conversation: Vec<_> = conversation().iter().map(Message::encode_to_vec).collect();
    let mut random = Random::seed_from_u64(11);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused_before = learner.refused();
    let (mut streams, mut answered, mut read, mut warm) = (0, 0, 0, None);
    while read < wanted {
        if read >= wanted / 4 {
            warm.get_or_insert_with(memory);
        }
        // Bytes that are not even HTTP.
        let junk: Vec<u8> = (0..random.random_range(0..2000)).map(|_| random.random()).collect();
        let _ = TcpStream::connect(learner.address()).unwrap().write_all(&junk);
        let endpoint = Endpoint::from_shared(format!("http://{}", learner.address())).unwrap();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        for _ in 0..PER_CONNECTION {
            // Most streams are changed from the start, so that most of what is read is changed; some are valid for a
            // while, so that the changes reach every state.
            let first = match random.random_range(0..20) {
                0 => 0,
                1 => random.random_range(4..STEPS),
                _ => random.random_range(1..4),
            };
            let messages = mutated(&mut random, &conversation, first);
            let answers = runtime.block_on(converse(&channel, messages));
            // Those before the first that is changed do not count.
            answered += answers.saturating_sub(first) as u64;
            streams += 1;
        }
        read = answered + learner.refused() - refused_before;
        // The notices of so many actors would take memory of this test.
        learner.said.lock().unwrap().clear();
        if !learner.is_running() {
            panic!("after stream {streams}: {}", learner.end());
        }
    }
    let grown = memory().saturating_sub(warm.unwrap());
    println!("{read} messages on {streams} streams, of which {answered} were answered; {grown} bytes more");
    assert!(answered > wanted / 100, "those that are valid are answered: {answered}");
    assert!(grown < 64 << 20, "memory grew by {grown} bytes");
    serves_those_who_behave();
    learner.stop();
}
