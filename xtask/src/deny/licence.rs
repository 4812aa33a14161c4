//! Licence expressions (SPDX): whether one can be met with a set of allowed licences.

use std::collections::BTreeSet;

/// True when some choice among the expression's alternatives is allowed. What is not understood is not allowed.
pub(super) fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    // The form of manifests before expressions were required.
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = expression.split_whitespace().collect();
    let mut parser = Parser { tokens: &tokens, allowed };
    let result = parser.any();
    result && parser.tokens.is_empty()
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    allowed: &'a BTreeSet<String>,
}

impl<'a> Parser<'a> {
    fn any(&mut self) -> bool {
        let mut result = self.all();
        while self.take("OR") {
            // Both sides are read, whatever the first gave.
            result |= self.all();
        }
        result
    }

    fn all(&mut self) -> bool {
        let mut result = self.one();
        while self.take("AND") {
            result &= self.one();
        }
        result
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            let result = self.any();
            return self.take(")") && result;
        }
        let Some(name) = self.next() else { return false };
        if self.take("WITH") {
            let exception = self.next().unwrap_or_default();
            return self.allowed.contains(&format!("{name} WITH {exception}"));
        }
        self.allowed.contains(name)
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.tokens.first() == Some(&word);
        if is_next {
            self.tokens = &self.tokens[1..];
        }
        is_next
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_needs_one_allowed_choice() {
        let allowed = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
        let cases = [
            ("MIT", true),
            ("Apache-2.0", false),
            ("Apache-2.0 OR MIT", true),
            ("Apache-2.0/MIT", true),
            ("MIT AND Zlib", true),
            ("MIT AND Apache-2.0", false),
            ("(Apache-2.0 OR MIT) AND Zlib", true),
            ("(Apache-2.0 OR MIT) AND GPL-3.0", false),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0", true),
            ("GPL-3.0 WITH LLVM-exception", false),
            ("(MIT", false),
            ("MIT MIT", false),
            ("", false),
        ];
        for (expression, expected) in cases {
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
        }
    }
}
