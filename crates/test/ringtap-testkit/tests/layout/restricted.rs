// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that only listed modules may make, because a mistake with them gives rights away.

use super::files::Source;

/// The modules, each with its topic and what for.
const LISTED: &str = include_str!("restricted.txt");

/// A kind of calls, and how they begin in code.
const TOPICS: [(&str, &[&str]); 3] = [
    (
        "files",
        &[
            "set_permissions",
            "chown",
            "fchown",
            "lchown",
            "chmod",
            "fchmod",
            "UnixListener::bind",
            "UnixDatagram::bind",
            "SocketAddrUnix::new",
            "create_dir",
            "DirBuilder",
            "mkdirat",
            "mkfifo",
            "mknod",
            "hard_link",
            "symlink(",
            "remove_file",
            "remove_dir",
            "unlinkat",
            "fs::write",
            "fs::rename",
            "fs::copy",
            "renameat",
            "File::create",
            "File::options",
            "create(true)",
            "write(true)",
            "append(true)",
        ],
    ),
    (
        "environment",
        &[
            "env::var",
            "env::temp_dir",
            "env::home_dir",
            "getenv",
            "secure_getenv",
        ],
    ),
    (
        "json",
        &[
            "serde_json::from_slice",
            "serde_json::from_str",
            "serde_json::from_reader",
        ],
    ),
];

pub(crate) fn faults(sources: &[Source]) -> Vec<String> {
    let code = sources.iter().filter(|source| is_code(&source.name));
    let code: Vec<_> = code.map(|source| (&*source.name, source.text())).collect();
    let listed = entries(LISTED);
    let mut faults = Vec::new();
    for (topic, calls) in TOPICS {
        let users = code
            .iter()
            .filter_map(|(name, text)| Some((*name, first(text, calls)?)));
        let users: Vec<_> = users.collect();
        for (name, call) in &users {
            if !listed.contains(&(topic, *name)) {
                faults.push(format!(
                    "{name}: {call}: use ringtap_ipc::folder, environment or text; or list the module under \
                     {topic} in restricted.txt, with a reason"
                ));
            }
        }
        let is_used = |name: &str| users.iter().any(|(user, _)| *user == name);
        for (_, name) in listed
            .iter()
            .filter(|(one, name)| *one == topic && !is_used(name))
        {
            faults.push(format!(
                "{name}: makes no call under {topic}: take it off restricted.txt"
            ));
        }
    }
    let is_topic = |topic: &str| TOPICS.iter().any(|(one, _)| *one == topic);
    let unknown = listed.iter().filter(|(topic, _)| !is_topic(topic));
    faults.extend(unknown.map(|(topic, _)| format!("restricted.txt: there is no topic {topic}")));
    faults
}

/// Topic and module of each line.
fn entries(list: &str) -> Vec<(&str, &str)> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let words = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let entry = (words.next()?, words.next()?);
        // Without a reason it does not count.
        words.next().map(|_| entry)
    });
    words.collect()
}

/// The first of these calls in code that is no test.
fn first(text: &str, calls: &[&'static str]) -> Option<&'static str> {
    let lines = text.lines().take_while(|line| *line != "mod tests {");
    let mut code = lines.filter(|line| !line.trim_start().starts_with("//"));
    code.find_map(|line| calls.iter().copied().find(|call| has(line, call)))
}

/// Whether the line has the call, not as the end of a longer name.
fn has(line: &str, call: &str) -> bool {
    line.match_indices(call).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

fn is_code(name: &str) -> bool {
    let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
    let is_ours = name.starts_with("crates/") && !name.starts_with("crates/test/");
    is_ours && name.contains("/src/") && name.ends_with(".rs") && !is_test
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_outside_of_the_listed_modules_is_a_fault() {
        let count = |text: &str| {
            let source = Source::new("crates/x/y/src/z.rs", text.as_bytes().to_vec());
            let about = |fault: &String| fault.starts_with("crates/x/y/src/z.rs");
            faults(&[source])
                .iter()
                .filter(|fault| about(fault))
                .count()
        };
        assert_eq!(count("std::fs::set_permissions(path, mode)?;\n"), 1);
        assert_eq!(count("    let a = std::env::var(\"A\");\n"), 1);
        assert_eq!(count("let listener = UnixListener::bind(&path)?;\n"), 1);
        assert_eq!(count("serde_json::from_slice(bytes)\n"), 1);
        assert_eq!(count("// std::env::var\n"), 0);
        assert_eq!(count("let state = StateFile::create()?;\n"), 0);
        assert_eq!(count("mod tests {\n    fs::write(path, text);\n"), 0);
    }

    #[test]
    fn a_line_of_the_list_needs_a_reason() {
        let list = "# comment\nfiles a.rs the user's own\nfiles b.rs\n";
        assert_eq!(entries(list), [("files", "a.rs")]);
    }
}
