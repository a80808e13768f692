// SPDX-License-Identifier: MIT OR Apache-2.0
//! Valid configurations, and the errors of wrong ones.

use super::*;
use crate::action::ProbeCommand;

fn error(text: &str) -> String {
    let parsed = ProbeConfig::parse("probe.toml", text, None);
    parsed.expect_err("it is wrong").to_string()
}

#[test]
fn an_analysis_has_the_same_name_without_a_file_and_in_one() {
    let text = "[[analysis]]\nkind = \"flows\"\n\
                [[analysis]]\nkind = \"top\"\nby = \"source\"\n\
                [[analysis]]\nkind = \"top\"\nby = \"destination\"\n\
                [[analysis]]\nkind = \"top\"\nby = \"port\"\n\
                [[analysis]]\nkind = \"top\"\nby = \"flow\"\n\
                [[analysis]]\nkind = \"sizes\"\n\
                [[analysis]]\nkind = \"cardinality\"\nby = \"source\"\n";
    let own = ProbeConfig::parse("probe.toml", text, None).expect("a configuration");
    let names =
        |plan: &ProbePlan| -> Vec<_> { plan.analyses.iter().map(|one| one.name.clone()).collect() };
    assert_eq!(names(&own.plan), names(&ProbePlan::standard(None)));
}

#[test]
fn a_time_is_the_same_in_a_file_and_for_ctl() {
    assert_eq!(time("2s"), Ok(Duration::from_secs(2)));
    assert_eq!(time("2"), Err(TimeError));
    assert!(TimeError.to_string().contains("like 500ms"));
}

#[test]
fn a_whole_file_is_understood() {
    let text = r#"
        [[analysis]]
        kind = "flows"
        idle = "30s"
        max_flows = 5000
        [[analysis]]
        kind = "top"
        where = "kernel"
        by = "pair"
        count = 20
        every = "1m"
        enabled = false
        [[analysis]]
        kind = "load"
        where = "kernel"
        loops = 70
        [[action]]
        do = "enable"
        analysis = "top pair"
        every = "5m"
        for = "30s"
        [[action]]
        do = "alarm"
        name = "flood"
        when = "top pair.bps > 1G"
        until = "top pair.bps < 800M"
        [[export]]
        to = "ipfix:udp://10.0.0.1:4739"
        [[export]]
        to = "json:/tmp/flows.json"
    "#;
    let config = ProbeConfig::parse("probe.toml", text, None).expect("it is right");
    let [flows, top, _] = &config.plan.analyses[..] else {
        panic!("{config:?}")
    };
    let AnalysisKind::Flows(options) = flows.kind else {
        panic!("{flows:?}")
    };
    assert_eq!(
        (options.idle, options.max_flows),
        (Duration::from_secs(30), 5000)
    );
    let kind = AnalysisKind::Top {
        by: KeyField::Pair,
        count: 20,
    };
    assert_eq!(
        (&*top.name, top.kind, top.enabled),
        ("top pair", kind, false)
    );
    assert_eq!(top.every, Some(Duration::from_secs(60)));
    let wants = config.plan.kernel_wants().expect("one is in the kernel");
    assert!(wants.key.source && wants.key.destination && !wants.key.ports);
    assert_eq!(wants.loops, 70);
    assert!(config.plan.needs_packets());
    let [enable, flood] = &config.plan.actions[..] else {
        panic!("{config:?}")
    };
    assert_eq!(
        (&*enable.name, &enable.command, enable.lasts),
        (
            "enable top pair",
            &Some(ProbeCommand::Enable("top pair".into())),
            Some(Duration::from_secs(30))
        )
    );
    assert_eq!((&*flood.name, &flood.command), ("flood", &None));
    assert_eq!(config.exports.len(), 2);
    assert_eq!(
        config.exports[1],
        ExportPlan::To(Destination::JsonFile("/tmp/flows.json".into()))
    );
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_key_and_what_is_possible() {
    for (text, told) in [
        (
            "[[analysis]]\nkind = \"flow\"",
            "probe.toml, line 2, kind: expected flows, top",
        ),
        (
            "[[analysis]]\nkind = \"top\"",
            "line 2, kind: needs by = one of source",
        ),
        (
            "[[analysis]]\nkind = \"top\"\nby = \"mac\"",
            "line 3, by: expected one of source",
        ),
        (
            "[[analysis]]\nkind = \"sizes\"\nidle = \"5s\"",
            "line 3, idle: means nothing for",
        ),
        (
            "[[analysis]]\nkind = \"flows\"\nidle = \"5\"",
            "line 3, idle: expected a time",
        ),
        (
            "[[analysis]]\nkind = \"flows\"\nsampling = 0",
            "line 3, sampling: expected a number",
        ),
        (
            "[[analysis]]\nkind = \"sizes\"\nwhere = \"nic\"",
            "line 3, where: expected workers or kernel",
        ),
        (
            "[[analysis]]\nkind = \"rtt\"\nwhere = \"kernel\"",
            "line 3, where: the kernel has flows, top",
        ),
        (
            "[[analysis]]\nkind = \"flows\"\nwhere = \"kernel\"\npayload_mib = 1",
            "line 4, payload_mib: needs payload",
        ),
        (
            "[[analysis]]\nkind = \"flows\"\nndpi = false\nwhere = \"kernel\"",
            "line 3, ndpi: needs payload",
        ),
        (
            "[[analysis]]\nkind = \"dns\"\ncount = 1001",
            "line 3, count: expected a number from 1 to 1000",
        ),
        (
            "congestion = \"30:10\"",
            "line 1, congestion: expected LOW:HIGH, percent of the pool that is free, like 10:30, or off",
        ),
        (
            "[[analysis]]\nkind = \"flows\"\nwhere = \"kernel\"\nidle = \"1s\"",
            "line 3, where: flows in the kernel need idle of at least 2s",
        ),
        (
            "[[analysis]]\nkind = \"sizes\"\n[[analysis]]\nkind = \"sizes\"",
            "line 4, name: there is",
        ),
        (
            "[[analysis]]\nkind = \"library\"\nlibrary = \"own.so\"",
            "line 3, library: expected the absolute path",
        ),
        (
            "[[analysis]]\nkind = \"gaps\"\nby = \"pair\"",
            "line 3, by: expected flow or capture",
        ),
        ("[[analysis]]\nkind = \"sizes\"\nevry = \"5s\"", "line 3"),
        (
            "[[action]]\ndo = \"stop\"\nevery = \"5s\"",
            "line 2, do: expected enable, disable",
        ),
        (
            "[[action]]\ndo = \"enable\"\nanalysis = \"dns\"\nevery = \"5s\"",
            "line 3, analysis: there is no analysis \"dns\"; the analyses are: flows, top source",
        ),
        (
            "[[action]]\ndo = \"snapshot\"",
            "line 2, do: needs either every",
        ),
        (
            "[[action]]\ndo = \"snapshot\"\nevery = \"50ms\"",
            "line 3, every: expected 1s or longer",
        ),
        (
            "[[action]]\ndo = \"alarm\"\nwhen = \"droped > 0\"",
            "line 3, when: expected NAME > NUMBER",
        ),
        (
            "[[action]]\ndo = \"alarm\"\nwhen = \"top source.distinct > 0\"",
            "line 3, when: \"top source\" has the values bytes, packets",
        ),
        (
            "[[action]]\ndo = \"period\"\nanalysis = \"flows\"\nperiod = \"1s\"\nevery = \"5s\"",
            "line 3, analysis: flow records have no period",
        ),
        (
            "[[export]]\nto = \"ipfix:10.0.0.1\"",
            "line 2, to: destination \"ipfix:10.0.0.1\": ",
        ),
        (
            "[[export]]\nto = \"kafka\"",
            "line 2, to: destination \"kafka\": expected one of ipfix:udp://",
        ),
        (
            "[[export]]\nto = \"json:/tmp/x?rotate=5\"",
            "line 2, to: destination \"json:/tmp/x?rotate=5\": \"rotate\" is no setting",
        ),
        (
            "[[analysis]]\nkind = \"load\"\nloops = 100001",
            "line 3, loops: expected a number from 1 to 100000",
        ),
        (
            "[[analysis]]\nkind = \"load\"\nloops = 0",
            "line 3, loops: expected a number from 1 to 100000",
        ),
        (
            "[[analysis]]\nkind = \"load\"\nwhere = \"kernel\"\nloops = 60000\n[[analysis]]\nkind = \"load\"\nname = \"more\"\nwhere = \"kernel\"\nloops = 40001",
            "line 9, loops: the kernel's analyses have 100001 loops for each packet so far: at most 100000 together",
        ),
        (
            "[[analysis]]\nkind = \"top\"\nby = \"pair\"\ncount = 10001",
            "line 4, count: expected a number from 1 to 10000",
        ),
        (
            "[[analysis]]\nkind = \"top\"\nby = \"source/33\"",
            "line 3, by: expected one of source, destination, pair, port, flow, or a network",
        ),
        (
            "[[analysis]]\nkind = \"flows\"\nmax_flows = 0",
            "line 3, max_flows: expected a number from 1 to 268435456",
        ),
        (
            "[[analysis]]\nkind = \"flows\"\nactive = \"0s\"",
            "line 3, active: expected a time above 0",
        ),
        (
            "[[analysis]]\nkind = \"flows\"\nevery = \"5s\"",
            "line 3, every: means nothing for",
        ),
        (
            "[[analysis]]\nkind = \"sizes\"\nevery = \"5 s\"",
            "line 3, every: expected a time above 0",
        ),
        (
            "[[analysis]]\nkind = \"flows\"\npayload_bytes = 65537",
            "line 3, payload_bytes: expected a number from 0 to 65536",
        ),
        (
            "[[analysis]]\nkind = \"flows\"\npayload_mib = 0",
            "line 3, payload_mib: expected a number from 1 to 1048576",
        ),
        (
            "[[analysis]]\nkind = \"sizes\"\nloops = 5",
            "line 3, loops: means nothing for",
        ),
        (
            "[[analysis]]\nkind = \"sizes\"\nprocesses = 2",
            "line 3, processes: means nothing for",
        ),
        (
            "[[analysis]]\nkind = \"sizes\"\nndpi = true",
            "line 3, ndpi: means nothing for",
        ),
        ("[[analysis]]\nkind = \"sizes\"\nenabled = \"no\"", "line 3"),
        (
            "[[analysis]]\nkind = \"gaps\"\nwhere = \"kernel\"",
            "line 3, where: the kernel has flows, top",
        ),
        (
            "[[analysis]]\nkind = \"dns\"\nwhere = \"kernel\"",
            "line 3, where: the kernel has flows, top",
        ),
        (
            "[kernel]\nflows = 0",
            "line 2, flows: expected a number from 1 to 16777216",
        ),
        (
            "[[analysis]]\nkind = \"library\"\nlibrary = \"/bin/sh\"\ntimeout = \"1s\"",
            "line 4, timeout: expected 2s or longer",
        ),
        (
            "[[analysis]]\nkind = \"library\"\nlibrary = \"/bin/sh\"\nreads = [\"own\"]",
            "line 4, reads: expected a list of absolute paths",
        ),
        (
            "[[analysis]]\nkind = \"library\"\nlibrary = \"/bin/sh\"\nwhere = \"kernel\"",
            "line 4, where: means nothing for",
        ),
        (
            "[[action]]\ndo = \"snapshot\"\nperiod = \"5s\"\nevery = \"5s\"",
            "line 3, period: means nothing without do = \"period\"",
        ),
        (
            "[[action]]\ndo = \"disable\"\nevery = \"5s\"",
            "line 2, do: needs analysis = the name of one",
        ),
        ("[[analysis]", "line 1"),
    ] {
        assert!(error(text).contains(told), "{text}: {}", error(text));
    }
}
