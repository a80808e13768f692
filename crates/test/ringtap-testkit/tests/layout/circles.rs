// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that import each other in a circle: none has more than [`LARGEST`] files.
//!
//! A `use` counts as an import of the file that defines the name, also if another file exports it again.

use std::collections::{BTreeMap, BTreeSet};

use super::files::Source;

const LARGEST: usize = 3;
/// Larger circles of today, by their first file, with their number of files. A number may only fall.
const KNOWN: &str = include_str!("circles.txt");

/// A module: its crate's folder, and the names from the crate's root on.
type Module = (String, Vec<String>);
/// Names that a module imports, with the paths that they stand for.
type Imports = BTreeMap<String, Vec<String>>;
/// Files that import each other, with the names that each takes from the others.
type Circle = BTreeMap<String, Vec<String>>;

pub(crate) fn faults(sources: &[Source]) -> Vec<String> {
    let code = sources.iter().filter(|source| is_code(&source.name));
    let found = circles(code.map(|source| (source.name.as_str(), source.text())));
    let known: BTreeMap<_, usize> = known().collect();
    let first = |circle: &Circle| circle.keys().next().cloned().unwrap_or_default();
    let mut faults = Vec::new();
    for circle in &found {
        let allowed = known
            .get(first(circle).as_str())
            .copied()
            .unwrap_or(LARGEST);
        if circle.len() > allowed {
            let line =
                |(file, names): (&String, &Vec<String>)| format!("  {file}: {}", names.join(", "));
            let files: Vec<_> = circle.iter().map(line).collect();
            faults.push(format!(
                "{} files import each other ({allowed} may): move what they share to a file that imports none \
                 of them:\n{}",
                circle.len(),
                files.join("\n")
            ));
        }
    }
    for (file, count) in known {
        if !found
            .iter()
            .any(|one| first(one) == file && one.len() == count)
        {
            faults.push(format!(
                "{file}: no circle of {count} files: change circles.txt"
            ));
        }
    }
    faults
}

fn known() -> impl Iterator<Item = (&'static str, usize)> {
    let lines = KNOWN.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let (file, count) = line.split_once(' ')?;
        Some((file, count.parse().ok()?))
    })
}

fn is_code(file: &str) -> bool {
    let is_test = file.contains("/tests/") || file.ends_with("/tests.rs");
    file.starts_with("crates/") && file.contains("/src/") && file.ends_with(".rs") && !is_test
}

/// The circles of more than [`LARGEST`] files.
fn circles<'a>(files: impl Iterator<Item = (&'a str, String)>) -> Vec<Circle> {
    let mut names = BTreeMap::new();
    let mut imports = BTreeMap::new();
    for (file, text) in files {
        let Some(module) = module(file) else {
            continue;
        };
        imports.insert(module.clone(), uses(&text));
        names.insert(module, file.to_owned());
    }
    let targets = |module: &Module| -> BTreeMap<String, Module> {
        let paths = imports[module].iter();
        let found = paths.filter_map(|(name, path)| {
            let target = definition(module, path, &imports, 0)?;
            (target != *module).then(|| (name.clone(), target))
        });
        found.collect()
    };
    let arrows: BTreeMap<_, _> = imports.keys().map(|one| (one, targets(one))).collect();
    let reached = |from: &Module| {
        let mut reached = BTreeSet::new();
        let mut left: Vec<_> = arrows[from].values().collect();
        while let Some(next) = left.pop() {
            if reached.insert(next) {
                left.extend(arrows[next].values());
            }
        }
        reached
    };
    let reach: BTreeMap<_, _> = arrows.keys().map(|one| (*one, reached(one))).collect();
    let mut found = BTreeSet::new();
    for (one, reached) in &reach {
        let back = |other: &&&Module| reach[**other].contains(one);
        let circle: BTreeSet<&Module> = reached.iter().filter(back).copied().collect();
        let inside = |module: &Module| {
            let arrows = arrows[module].iter();
            let inside = arrows.filter(|(_, target)| circle.contains(target));
            inside.map(|(name, _)| name.clone()).collect()
        };
        if circle.len() > LARGEST {
            let files = circle.iter().map(|one| (names[*one].clone(), inside(one)));
            found.insert(files.collect::<Circle>());
        }
    }
    found.into_iter().collect()
}

fn module(file: &str) -> Option<Module> {
    let (folder, path) = file.split_once("/src/")?;
    let path = path.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let names = match path {
        "lib" | "main" => Vec::new(),
        _ => path.split('/').map(str::to_owned).collect(),
    };
    Some((folder.to_owned(), names))
}

/// The module that defines what a path of this module stands for; `None` outside of the crate.
fn definition(
    from: &Module,
    path: &[String],
    imports: &BTreeMap<Module, Imports>,
    depth: usize,
) -> Option<Module> {
    let (folder, mut at) = from.clone();
    let mut left = path.iter().peekable();
    match path.first()?.as_str() {
        "crate" => at.clear(),
        "super" | "self" => {}
        first => {
            let child = [at.as_slice(), &[first.to_owned()]].concat();
            imports.get(&(folder.clone(), child))?;
        }
    }
    left.next_if(|one| *one == "crate" || *one == "self");
    while left.next_if(|one| *one == "super").is_some() {
        at.pop();
    }
    while let Some(next) = left.next_if(|one| {
        let child = [at.as_slice(), &[(*one).clone()]].concat();
        imports.contains_key(&(folder.clone(), child))
    }) {
        at.push(next.clone());
    }
    let module = (folder, at);
    let own = imports.get(&module)?;
    let again = left.next().and_then(|name| own.get(name));
    match again.filter(|_| depth < 8) {
        Some(again) => definition(&module, again, imports, depth + 1).or(Some(module)),
        None => Some(module),
    }
}

/// What a file imports outside of its tests.
fn uses(text: &str) -> Imports {
    let lines = text.lines().take_while(|line| *line != "mod tests {");
    let code: Vec<_> = lines
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect();
    let mut imports = Imports::new();
    let mut left = code.join("\n");
    left.insert(0, '\n');
    for statement in left.split(';') {
        let Some(line) = statement.rfind("\nuse ").or(statement.rfind("\npub")) else {
            continue;
        };
        let Some((before, tree)) = statement[line..].split_once("use ") else {
            continue;
        };
        if before.trim().is_empty() || before.trim().starts_with("pub") {
            add(&tree.replace(char::is_whitespace, " "), &[], &mut imports);
        }
    }
    imports
}

/// Adds the paths of a tree: `a::{b, c::d as e}`.
fn add(tree: &str, before: &[String], imports: &mut Imports) {
    let tree = tree.trim();
    if let Some((path, inner)) = tree.split_once('{') {
        let path = path.split("::").map(|one| one.trim().to_owned());
        let path = path.filter(|one| !one.is_empty());
        let path: Vec<_> = before.iter().cloned().chain(path).collect();
        let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
        split(inner).for_each(|one| add(one, &path, imports));
    } else if !tree.is_empty() {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path = path.split("::").map(|one| one.trim().to_owned());
        let mut path: Vec<_> = before.iter().cloned().chain(path).collect();
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let last = path.last().cloned().unwrap_or_default();
        let name = if name.is_empty() {
            last
        } else {
            name.to_owned()
        };
        imports.insert(name, path);
    }
}

/// The parts between commas outside of braces.
fn split(tree: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    tree.split(move |c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&'static str, &str)]) -> Vec<usize> {
        let files = files.iter().map(|(file, text)| (*file, (*text).to_owned()));
        circles(files).iter().map(Circle::len).collect()
    }

    #[test]
    fn four_files_in_a_circle_are_found_also_through_a_name_that_is_exported_again() {
        let lib = ("crates/x/src/lib.rs", "mod a;\npub use a::One;\n");
        let a = (
            "crates/x/src/a.rs",
            "use std::io;\nuse crate::b::{self, c::Two};\npub struct One;\n",
        );
        let b = ("crates/x/src/b.rs", "pub mod c;\nuse c::d::Three;\n");
        let c = ("crates/x/src/b/c.rs", "mod d;\nuse super::super::One;\n");
        let d = ("crates/x/src/b/c/d.rs", "use crate::{One as Un};\n");
        assert_eq!(of(&[lib, a, b, c, d]), [4]);
        let a_leaf = ("crates/x/src/a.rs", "pub struct One;\n");
        assert!(of(&[lib, a_leaf, b, c, d]).is_empty());
        let tests = (
            "crates/x/src/a.rs",
            "pub struct One;\nmod tests {\nuse crate::b::c::Two;\n",
        );
        assert!(of(&[lib, tests, b, c, d]).is_empty());
    }
}
