//! Who and what is refused: wrong tokens, plain text, other versions, malformed and oversized messages.

use std::io::Write;
use std::net::TcpStream;

use remote::proto::actor_message::Kind;
use remote::proto::actors_client::ActorsClient;
use remote::proto::{Act, ActorMessage, Hello, Operation};
use remote::tls::{Identity, Trust};
use remote::{ActorOptions, ActorPool, ListenOptions, Token, VERSION};
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use train::environments::Task;
use train::run::stop::Stop;

use crate::fuzz::{append, conversation};
use crate::support::{Actors, Learner, config, connect_to, on_loopback, task, until};

/// The answer to these messages of a client without token or TLS.
fn answer(address: &str, messages: Vec<ActorMessage>) -> Status {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let mut client = ActorsClient::new(channel);
        let stream = tokio_stream::iter(messages);
        let mut replies = match client.play(stream).await {
            Ok(replies) => replies.into_inner(),
            Err(status) => return status,
        };
        loop {
            match replies.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok("the stream ended"),
                Err(status) => return status,
            }
        }
    })
}

pub fn hello() -> Hello {
    let (actor, host) = ("a-1".to_owned(), "here".to_owned());
    Hello { version: VERSION.to_owned(), actor, host, environments: 2, run: String::new() }
}

fn message(kind: Kind) -> ActorMessage {
    ActorMessage { kind: Some(kind) }
}

#[test]
fn messages_that_no_actor_sends_are_refused_counted_and_reported_once() {
    let scratch = tempfile::tempdir().unwrap();
    let learner = Learner::start(scratch.path(), &config(&["run.frames=1000000000"]), on_loopback());
    // Before the run trains there is nobody to report it to.
    until("it is reported", || {
        let status = answer(&learner.address(), vec![message(Kind::Act(Act::default()))]);
        assert_eq!(status.message(), "its first message is not a hello");
        learner.has_said("refused a remote actor: its first message is not a hello (more of this kind")
    });
    let refused = learner.refused();
    let other = Hello { version: "9.9".to_owned(), ..hello() };
    let status = answer(&learner.address(), vec![message(Kind::Hello(other))]);
    let expected = format!("the learner runs meme {VERSION}, the actor meme 9.9; use the same version");
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, expected.as_str()));
    assert_eq!(learner.refused(), refused + 1);

    let twice = vec![message(Kind::Hello(hello())), message(Kind::Hello(hello()))];
    until("it can be joined", || answer(&learner.address(), twice.clone()).message() == "it sent a second hello");
    let act = Act { group: 7, ..Act::default() };
    let status = answer(&learner.address(), vec![message(Kind::Hello(hello())), message(Kind::Act(act))]);
    assert_eq!(status.message(), "group 7 with 0 environments is not one of 2 with 1");
    for (poison, expected) in [
        (Operation { extrinsic: 3e38, ..append() }, "a reward is 3e38, not within ±1e12"),
        (Operation { probability: 0.0, ..append() }, "an action's probability is 0, not above 0"),
    ] {
        let mut poisoned = conversation();
        let appended = poisoned.iter_mut().find_map(|message| match &mut message.kind {
            Some(Kind::Act(act)) => act.environments[0].operations.last_mut(),
            _ => None,
        });
        *appended.unwrap() = poison;
        assert_eq!(answer(&learner.address(), poisoned).message(), expected);
    }
    let large = Act { faults: vec!["x".repeat(1 << 20); 20], ..Act::default() };
    let refused = learner.refused();
    answer(&learner.address(), vec![message(Kind::Hello(hello())), message(Kind::Act(large))]);
    until("the oversized message is counted", || learner.refused() > refused);

    let refused = learner.refused();
    // A connection that is lost while it begins does not count as a refusal.
    TcpStream::connect(learner.address()).unwrap().write_all(b"PRI * HTTP/2.0").unwrap();
    let mut plain = TcpStream::connect(learner.address()).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    until("HTTP/1 is counted", || learner.refused() > refused);
    assert_eq!(learner.refused(), refused + 1);
    assert!(learner.is_running());
    let said = learner.said.lock().unwrap().clone();
    let kinds: std::collections::BTreeSet<_> = said.iter().filter(|said| said.contains("refused")).collect();
    assert_eq!(kinds.len(), said.iter().filter(|said| said.contains("refused")).count(), "{said:?}");
    learner.stop();
}

#[test]
fn other_addresses_need_a_token_and_tls() {
    let scratch = tempfile::tempdir().unwrap();
    let actors = std::sync::Arc::new(train::roles::remote_actors::RemoteActors::new(1));
    let address = "0.0.0.0:0".parse().unwrap();
    let open = ListenOptions { address, ..on_loopback() };
    let error = remote::Listener::start(open, actors).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "0.0.0.0:0 can be reached by other machines, so it needs a token and TLS");

    let identity = Identity::read_or_create(scratch.path()).unwrap();
    let token = Token::new("a-token-of-some-length").unwrap();
    let trust = Some(Trust::Fingerprint(identity.fingerprint));
    let options =
        ListenOptions { address, token: Some(token.clone()), identity: Some(identity), run: "run".to_owned() };
    let learner = Learner::start(scratch.path(), &config(&["run.frames=1000000000"]), options);
    let address = format!("127.0.0.1:{}", learner.listener.address().port());
    let with = |token: Option<Token>, trust: Option<Trust>| connect_to(address.clone(), token, trust);
    let actors = Actors::start(with(Some(token.clone()), trust.clone()), 2);
    until("they play", || learner.steps() > 50);

    for wrong in [None, Token::new("another-token-of-that-length")] {
        let refused = Actors::start(with(wrong, trust.clone()), 2).end().unwrap_err();
        assert_eq!(refused.to_string(), format!("the learner at {address} refused: wrong or missing token"));
    }
    let other = Identity::read_or_create(&scratch.path().join("other")).unwrap();
    let unknown = Actors::start(with(Some(token.clone()), Some(Trust::Fingerprint(other.fingerprint))), 2);
    let expected = format!("the learner at {address} is not trusted: the certificate has the fingerprint ");
    let refused = unknown.end().unwrap_err().to_string();
    assert!(refused.starts_with(&expected), "{refused}");
    let plain = Actors::start(with(Some(token.clone()), None), 2);
    let expected = "the learner closed the connection; trust it";
    until("it is refused", || plain.said.lock().unwrap().iter().any(|said| said.contains(expected)));
    plain.stop.request();
    plain.end().unwrap();
    assert!(learner.refused() >= 4, "{}", learner.refused());
    until("it is reported", || learner.has_said("refused a remote actor: no TLS connection from 127.0.0.1"));
    let said = learner.said.lock().unwrap().clone();
    assert!(said.iter().filter(|said| said.contains("wrong or missing token")).count() == 1, "{said:?}");
    actors.stop.request();
    actors.end().unwrap();
    learner.stop();
}

#[test]
fn authority_without_a_certificate_is_refused_at_once() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("token");
    Token::read_or_create(&path).unwrap();
    let refused = Trust::read(&path).unwrap_err();
    assert_eq!(refused.to_string(), format!("{} has no certificate in PEM form", path.display()));
}

#[test]
fn machine_that_cannot_run_the_environment_gives_up() {
    let scratch = tempfile::tempdir().unwrap();
    let learner = Learner::start(scratch.path(), &config(&["run.frames=1000000000"]), on_loopback());
    let connect = connect_to(learner.address(), None, None);
    let options = ActorOptions { connect, environments: 2, patience: None };
    let without_python = |_: &str| Ok(Task { python: "/bin/false".into(), ..task("pong") });
    let refused = ActorPool::play(&options, &without_python, &Stop::new(), &|_| {}).unwrap_err();
    assert!(refused.to_string().contains("the environment worker of pong was lost during open"), "{refused}");
    assert!(learner.is_running());
    assert_eq!(learner.refused(), 0);
    learner.stop();
}
