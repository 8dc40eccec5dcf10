//! The server as a browser or an attacker sees it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use train::config::Config;
use train::run::{EVALUATION_SCORE, ExistingRun, MetricsWriter, Row, RunDescription, RunDirectory};

use super::*;

/// A run of pong with a few rows.
fn make_run(root: &Path, name: &str, rows: u64) -> RunDirectory {
    let description = RunDescription::new("pong", "paper", 1);
    let config = Config::default().to_toml().unwrap();
    let (run, _) = RunDirectory::open(root, name, ExistingRun::Resume, description, &config).unwrap();
    let (mut metrics, _) = MetricsWriter::open(&run.files.metrics_file(), None).unwrap();
    for i in 1..=rows {
        let mut row = Row::new(i * 1000);
        row.scalar(EVALUATION_SCORE, i as f64).scalar("speed/frames_per_second", 500.0);
        row.vector("bandit/pulls", [i as f64, 2.0 * i as f64]);
        metrics.append(&row).unwrap();
    }
    run
}

/// Status and whole answer of a request with these header lines.
fn ask(watching: &Watching, method: &str, path: &str, headers: &str) -> (u16, String) {
    let address = watching.url.split('/').nth(2).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let host = if headers.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
    write!(stream, "{method} {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

fn get(watching: &Watching, path: &str) -> (u16, String) {
    ask(watching, "GET", path, "")
}

fn local(root: &Path) -> Watching {
    start(root, Some(parse_address("0").unwrap()), None).unwrap()
}

#[test]
fn runs_and_their_charts_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let held = make_run(root, "first", 9);
    fs::create_dir(root.join("sweep")).unwrap();
    fs::write(root.join("sweep/sweep.json"), "{}").unwrap();
    drop(make_run(&root.join("sweep"), "second", 3));
    let watching = local(root);
    let (status, page) = get(&watching, "/");
    assert!(status == 200 && page.contains("<script src=\"watch.js\">") && page.contains("content-security-policy"));
    let (status, runs) = get(&watching, "/api/runs");
    assert_eq!(status, 200);
    for part in ["\"name\":\"first\"", "\"name\":\"sweep/second\"", "\"state\":\"running\"", "\"seconds_left\":"] {
        assert!(runs.contains(part), "{part}: {runs}");
    }
    let (status, charts) = get(&watching, "/api/charts?name=first");
    assert!(status == 200 && charts.contains(">Score<") && charts.contains("Episodes by policy"), "{charts}");
    assert_eq!(get(&watching, "/api/charts?name=first&version=1").0, 204);
    let (status, details) = get(&watching, "/api/run?name=sweep%2Fsecond");
    assert!(status == 200 && details.contains("\"differences\":[]") && details.contains("[env]"), "{details}");
    let (status, error) = ask(&watching, "POST", "/api/record?name=first", "Content-Length: 0\r\n");
    assert!(status == 409 && error.contains("there is no checkpoint yet"), "{error}");
    assert_eq!(get(&watching, "/api/video?name=first").0, 404);
    drop(held);
}

#[test]
fn nothing_outside_the_runs_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("runs");
    drop(make_run(&root, "first", 1));
    drop(make_run(directory.path(), "secret", 1));
    std::os::unix::fs::symlink(directory.path().join("secret"), root.join("link")).unwrap();
    let watching = local(&root);
    let names = [
        "../secret",
        "..%2Fsecret",
        "first%2F..%2F..%2Fsecret",
        "%2Fetc",
        "..",
        ".",
        "",
        "link",
        "first%00",
        "a%2Fb%2Fc",
    ];
    for name in names {
        for path in ["run", "charts", "video"] {
            assert_eq!(get(&watching, &format!("/api/{path}?name={name}")).0, 404, "{path} {name}");
        }
        let (status, _) = ask(&watching, "POST", &format!("/api/record?name={name}"), "Content-Length: 0\r\n");
        assert_eq!(status, 404, "{name}");
    }
    // Nor through another parameter.
    for query in
        ["name=first&version=../secret", "name=first&version=..%2Fsecret", "name=first&x=../secret", "version=1"]
    {
        for path in ["run", "charts", "video"] {
            assert_eq!(get(&watching, &format!("/api/{path}?{query}")).0, 404, "{path} {query}");
        }
    }
    for path in ["/../secret/run.json", "/first/run.json", "/runs", "/api", "/watch.js/../../secret"] {
        assert_eq!(get(&watching, path).0, 404, "{path}");
    }
    assert!(!get(&watching, "/api/runs").1.contains("\"link\""));
    // Nothing can be changed either.
    assert_eq!(ask(&watching, "POST", "/api/run?name=first", "Content-Length: 0\r\n").0, 405);
    assert_eq!(ask(&watching, "DELETE", "/api/run?name=first", "").0, 405);
}

#[test]
fn loopback_answers_only_to_its_own_names() {
    let directory = tempfile::tempdir().unwrap();
    let watching = local(directory.path());
    assert!(!watching.url.contains("token"));
    for (host, status) in [
        ("localhost", 200),
        ("127.0.0.1:99", 200),
        ("[::1]:80", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
    ] {
        assert_eq!(ask(&watching, "GET", "/api/runs", &format!("Host: {host}\r\n")).0, status, "{host}");
    }
}

#[test]
fn other_addresses_need_the_token() {
    let directory = tempfile::tempdir().unwrap();
    let mut watching = start(directory.path(), Some("0.0.0.0:0".parse().unwrap()), None).unwrap();
    let token = watching.url.split("token=").nth(1).unwrap().to_owned();
    assert_eq!(token.len(), 32);
    let port = watching.url.split(':').nth(2).unwrap().split('/').next().unwrap();
    watching.url = format!("http://127.0.0.1:{port}/");
    for path in
        ["/", "/watch.js", "/api/runs", "/api/run?name=x", "/?token=", "/?token=0123456789abcdef0123456789abcdef"]
    {
        assert_eq!(get(&watching, path).0, 401, "{path}");
    }
    assert_eq!(ask(&watching, "GET", "/api/runs", "Cookie: meme_token=wrong\r\n").0, 401);
    let (status, answer) = get(&watching, &format!("/?token={token}"));
    assert!(
        status == 303 && answer.contains("location: /\r\n") && answer.contains("HttpOnly; SameSite=Strict"),
        "{answer}"
    );
    let cookie = format!("Cookie: other=1; meme_token={token}\r\n");
    assert_eq!(ask(&watching, "GET", "/api/runs", &cookie).0, 200);
    let another = start(directory.path(), Some("0.0.0.0:0".parse().unwrap()), None).unwrap();
    assert!(!another.url.contains(&token));
}

#[test]
fn wrong_addresses_and_certificates_are_refused() {
    assert_eq!(parse_address("7000").unwrap(), "127.0.0.1:7000".parse().unwrap());
    assert_eq!(parse_address("[::1]:7000").unwrap(), "[::1]:7000".parse().unwrap());
    assert!(parse_address("somewhere").unwrap_err().starts_with("expected an IP address"));
    let directory = tempfile::tempdir().unwrap();
    let first = local(directory.path());
    let taken = first.url.split('/').nth(2).unwrap().parse().unwrap();
    let error = format!("{:#}", start(directory.path(), Some(taken), None).unwrap_err());
    assert!(error.starts_with(&format!("cannot listen on {taken}; choose another address")), "{error}");
    let missing = directory.path().join("none.pem");
    let address = parse_address("0").unwrap();
    let error = format!("{:#}", start(directory.path(), Some(address), Some((&missing, &missing))).unwrap_err());
    assert!(error.starts_with("cannot use the certificate "), "{error}");
}
