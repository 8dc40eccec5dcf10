//! Who and what is refused: wrong tokens, plain text, other versions, malformed and oversized messages.

use std::io::Write;
use std::net::TcpStream;

use remote::proto::actor_message::Kind;
use remote::proto::actors_client::ActorsClient;
use remote::proto::{Act, ActorMessage, Hello};
use remote::tls::{Identity, Trust};
use remote::{ConnectOptions, ListenOptions, RemoteError, Token, VERSION};
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use crate::support::{Actors, Learner, config, on_loopback, until};

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
    until("it trains", || {
        let status = answer(&learner.address(), vec![message(Kind::Act(Act::default()))]);
        assert_eq!(status.message(), "its first message is not a hello");
        learner.has_said("refused a remote actor: its first message is not a hello (more of this kind")
            // Before the run trains there is nobody to report it to.
            || learner.refused() > 3
    });
    let refused = learner.refused();
    let other = Hello { version: "9.9".to_owned(), ..hello() };
    let status = answer(&learner.address(), vec![message(Kind::Hello(other))]);
    let expected = format!("the learner runs meme {VERSION}, the actor meme 9.9; use the same version");
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, expected.as_str()));
    assert_eq!(learner.refused(), refused + 1);

    let twice = vec![message(Kind::Hello(hello())), message(Kind::Hello(hello()))];
    until("it can be joined", || answer(&learner.address(), twice.clone()).message() == "it said hello twice");
    let act = Act { group: 7, ..Act::default() };
    let status = answer(&learner.address(), vec![message(Kind::Hello(hello())), message(Kind::Act(act))]);
    assert_eq!(status.message(), "group 7 with 0 environments is not one of 2 with 1");
    let large = Act { faults: vec!["x".repeat(1 << 20); 20], ..Act::default() };
    let refused = learner.refused();
    answer(&learner.address(), vec![message(Kind::Hello(hello())), message(Kind::Act(large))]);
    until("the oversized message is counted", || learner.refused() > refused);

    let refused = learner.refused();
    let mut plain = TcpStream::connect(learner.address()).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    until("HTTP/1 is counted", || learner.refused() > refused);
    assert!(learner.is_running());
    let said = learner.said.lock().unwrap().clone();
    let kinds: std::collections::BTreeSet<_> = said.iter().filter(|said| said.contains("refused")).collect();
    assert_eq!(kinds.len(), said.iter().filter(|said| said.contains("refused")).count(), "{said:?}");
    learner.stop();
}

#[test]
fn other_addresses_need_a_token_and_tls() {
    let scratch = tempfile::tempdir().unwrap();
    let actors = std::sync::Arc::new(train::runtime::remote_actors::RemoteActors::new(1));
    let address = "0.0.0.0:0".parse().unwrap();
    let open = ListenOptions { address, ..on_loopback() };
    let error = remote::Listener::start(open, actors).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "0.0.0.0:0 can be reached by other machines, so it needs a token and TLS");

    let identity = Identity::keep(scratch.path()).unwrap();
    let token = Token::new("a-token-of-some-length").unwrap();
    let trust = Some(Trust::Fingerprint(identity.fingerprint));
    let options =
        ListenOptions { address, token: Some(token.clone()), identity: Some(identity), run: "run".to_owned() };
    let learner = Learner::start(scratch.path(), &config(&["run.frames=1000000000"]), options);
    let address = format!("127.0.0.1:{}", learner.listener.address().port());
    let with = |token: Option<Token>, trust: Option<Trust>| ConnectOptions { address: address.clone(), token, trust };
    let actors = Actors::start(with(Some(token.clone()), trust.clone()), 2);
    until("they play", || learner.steps() > 50);

    for wrong in [None, Token::new("another-token-of-that-length")] {
        let refused = Actors::start(with(wrong, trust.clone()), 2).end().unwrap_err();
        assert!(matches!(&refused, RemoteError::Refused(why) if why == "the learner refused: wrong or missing token"));
    }
    let other = Identity::keep(&scratch.path().join("other")).unwrap();
    for (unknown, expected) in [(Some(Trust::Fingerprint(other.fingerprint)), "fingerprint"), (None, "no learner")] {
        let lost = Actors::start(with(Some(token.clone()), unknown), 2);
        until("it is refused", || lost.said.lock().unwrap().iter().any(|said| said.contains(expected)));
        lost.stop.request();
        lost.end().unwrap();
    }
    assert!(learner.refused() >= 4, "{}", learner.refused());
    until("it is reported", || learner.has_said("refused a remote actor: no TLS connection from 127.0.0.1"));
    let said = learner.said.lock().unwrap().clone();
    assert!(said.iter().filter(|said| said.contains("wrong or missing token")).count() == 1, "{said:?}");
    actors.stop.request();
    actors.end().unwrap();
    learner.stop();
}
