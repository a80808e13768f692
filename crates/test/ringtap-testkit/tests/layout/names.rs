// SPDX-License-Identifier: MIT OR Apache-2.0
//! Type names are unique in the workspace.

use std::collections::BTreeMap;

use super::files::Source;

pub(crate) fn faults(sources: &[Source]) -> Vec<String> {
    let found = doubled(sources.iter().map(|source| (&*source.name, source.text())));
    let fault = |(name, files): (String, Vec<String>)| {
        let files = files.join(", ");
        format!("{name}: several types have this name ({files}): rename one")
    };
    found.into_iter().map(fault).collect()
}

/// The type names of more than one file, with these files; tests are left out.
fn doubled<'a>(sources: impl Iterator<Item = (&'a str, String)>) -> BTreeMap<String, Vec<String>> {
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, text) in sources.filter(|(file, _)| is_code(file)) {
        let lines = text.lines().take_while(|line| *line != "mod tests {");
        for name in lines.filter_map(type_name) {
            types
                .entry(name.to_owned())
                .or_default()
                .push(file.to_owned());
        }
    }
    types.retain(|_, files| files.len() > 1);
    types
}

fn is_code(file: &str) -> bool {
    let is_test = file.contains("/tests/") || file.ends_with("/tests.rs");
    file.starts_with("crates/") && file.contains("/src/") && !is_test
}

/// The name of the type that a line at the start of a file's margin defines.
fn type_name(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) => {
            let open = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
            open.map_or(rest, |(_, rest)| rest).strip_prefix(' ')?
        }
        None => line,
    };
    let line = line.strip_prefix("unsafe ").unwrap_or(line);
    let words = ["struct ", "enum ", "union ", "trait ", "type "];
    let rest = words.iter().find_map(|word| line.strip_prefix(word))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[(&'static str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(name, text)| (*name, (*text).to_owned()));
        doubled(files).into_keys().collect()
    }

    #[test]
    fn a_name_that_two_files_give_to_a_type_is_doubled() {
        let one = ("crates/a/b/src/x.rs", "pub(crate) struct Lane {\n");
        let other = ("crates/a/c/src/y.rs", "enum Lane {\n");
        let test = ("crates/a/c/src/tests.rs", "enum Lane {\n");
        assert_eq!(names(&[one, other]), ["Lane"]);
        assert!(names(&[one, test]).is_empty());
        let inner = ("crates/a/c/src/z.rs", "mod tests {\n\nstruct Lane;\n");
        let of_trait = ("crates/a/d/src/z.rs", "    type Lane = u8;\n");
        assert!(names(&[one, inner, of_trait]).is_empty());
    }
}
