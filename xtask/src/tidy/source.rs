//! Just enough reading of Rust source: what of it is product code, and which paths it names.
//!
//! It is no parser. A path in a string or behind a macro is read as code or missed; the rules that use this are of a
//! kind where that shows at once.

/// The code without comments, and without the test module, which comes last in a file.
pub(super) fn product_code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for line in text.lines() {
        if line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test") {
            break;
        }
        code.push_str(line.split_once("//").map_or(line, |(before, _)| before));
        code.push('\n');
    }
    code
}

/// Every path with at least two segments that the code names, `use` trees spread out.
pub(super) fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(start) = find_use(rest) {
        let (before, after) = rest.split_at(start);
        inline_paths(before, &mut found);
        let (tree, behind) = after.split_once(';').unwrap_or((after, ""));
        spread(&tree["use ".len()..], "", &mut found);
        rest = behind;
    }
    inline_paths(rest, &mut found);
    found
}

fn find_use(code: &str) -> Option<usize> {
    code.match_indices("use ").map(|(index, _)| index).find(|&index| {
        let before = code[..index].trim_end_matches([' ', '\t']);
        before.is_empty() || before.ends_with('\n') || before.ends_with(')') || before.ends_with("pub")
    })
}

fn inline_paths(code: &str, found: &mut Vec<String>) {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for word in code.split(|c: char| !is_part(c)) {
        let word = word.trim_matches(':');
        if word.contains("::") {
            found.push(word.to_owned());
        }
    }
}

/// `a::{b, c::{d, self}}` gives `a::b`, `a::c::d` and `a::c`.
fn spread(tree: &str, prefix: &str, found: &mut Vec<String>) {
    for part in split_top_level(tree) {
        let part = part.trim();
        if let Some((path, inner)) = part.split_once('{') {
            let inner = inner.trim_end();
            let inner = inner.strip_suffix('}').unwrap_or(inner);
            spread(inner, &format!("{prefix}{}", path.trim()), found);
        } else if part == "self" {
            found.push(prefix.trim_end_matches("::").to_owned());
        } else if !part.is_empty() {
            let path = part.split_once(" as ").map_or(part, |(path, _)| path);
            found.push(format!("{prefix}{path}"));
        }
    }
}

/// Splits at the commas that are in no braces.
fn split_top_level(tree: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut depth = 0_u32;
    let mut start = 0;
    for (index, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&tree[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&tree[start..]);
    parts
}

/// Whether the path names `wanted`: its segments in a row, wherever they stand.
pub(super) fn names(path: &str, wanted: &str) -> bool {
    let path: Vec<&str> = path.split("::").collect();
    let wanted: Vec<&str> = wanted.split("::").collect();
    path.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_trees_are_spread_out() {
        let code = "use std::{fs, net::{IpAddr, TcpStream as Stream}, io::{self}};\npub(crate) use a::b;\n\
                    fn f() { tokio::spawn(x); let because = x; }\n";
        assert_eq!(
            paths(code),
            ["std::fs", "std::net::IpAddr", "std::net::TcpStream", "std::io", "a::b", "tokio::spawn"]
        );
    }

    #[test]
    fn comments_and_the_test_module_are_no_product_code() {
        let text = "//! std::fs\nfn f() {} // tokio::net\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        assert_eq!(paths(&product_code(text)), Vec::<String>::new());
    }

    #[test]
    fn a_name_matches_whole_segments_in_a_row() {
        assert!(names("std::time::Instant::now", "Instant::now"));
        assert!(names("tokio::net::TcpStream", "tokio::net"));
        assert!(!names("tokio_util::net", "tokio"));
        assert!(!names("std::time::Instant", "Instant::now"));
    }
}
