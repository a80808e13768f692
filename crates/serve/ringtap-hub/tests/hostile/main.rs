// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers that lie, in memory and on the socket, do not harm the hub or other readers.
//!
//! `fuzz/` runs the same bodies with bytes that a fuzzer chooses.

mod descriptors;
mod distributor;
#[path = "../shared/fed.rs"]
mod fed;
mod server;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::string::string_regex;
use ringtap_hub::server::{Server, ServerOptions};
use ringtap_ipc::protocol::Reply;
use ringtap_ipc::socket::Listener;

/// Messages that are almost valid.
fn near() -> impl Strategy<Value = String> {
    let ask = "(hello|attach|filter|credit|statistics|detach|status)";
    let numbers = "[0-9]{1,20}(,[0-9]{1,20}){0,3}";
    let value = format!(
        r#"(-?[0-9]{{1,20}}|"[a-z]{{0,4}}"|\[({numbers})?\]|null|true|\{{\}}|\{{"packets":[0-9]{{1,10}}\}})"#
    );
    let keys = "(protocol|features|name|group|filter|program|credit_chunks|chunks\
        |watermark|private)";
    let pattern = format!(r#"\{{"ask":"{ask}"(,"{keys}":{value}){{0,4}}\}}"#);
    string_regex(&pattern).expect("a regular expression")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_that_corrupts_its_control_region_costs_others_nothing(bytes in vec(any::<u8>(), 0..600)) {
        distributor::run(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_messages_leave_the_server_open_for_others(
        how: u8,
        messages in vec(prop_oneof![near(), any::<String>()], 0..12),
    ) {
        let mut bytes = vec![how];
        bytes.extend(messages.join("\n").as_bytes());
        server::run(&bytes);
    }
}

#[test]
fn a_reader_has_the_name_of_its_hello_without_control_characters() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hub.sock");
    let hub = server::quiet_hub();
    let listener = Listener::bind(&path).expect("a socket");
    let _server = Server::open(listener, &hub, ServerOptions::default()).expect("a thread");
    let reader = server::connect(&path);
    let hello = br#"{"ask":"hello","protocol":1,"name":"red\u001b[31m"}"#;
    server::ask(&reader, hello).expect("an answer to hello");
    server::ask(&reader, server::ATTACH).expect("an answer to attach");
    let Some(Reply::Status(status)) = server::ask(&reader, server::STATUS) else {
        panic!("the hub tells no status");
    };
    let names: Vec<_> = status
        .readers
        .iter()
        .map(|reader| reader.name.as_str())
        .collect();
    assert_eq!(names, ["red\u{fffd}[31m"]);
}
