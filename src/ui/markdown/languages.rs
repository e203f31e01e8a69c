//! The languages whose code is coloured: what their comments, strings, keywords and names look like, as plain data.

/// How a language is written, as far as its colours need it.
#[derive(Debug)]
pub(super) struct Language {
    /// What the fence of a code block may call it, in lower case.
    names: &'static [&'static str],
    pub(super) shape: Shape,
    pub(super) line_comments: &'static [&'static str],
    pub(super) block_comment: Option<(&'static str, &'static str)>,
    /// The longest beginning first.
    pub(super) quotes: &'static [Quote],
    /// Separated by blanks.
    keywords: &'static str,
    /// Keywords may be in upper case too.
    ignores_case: bool,
    /// What follows a name that is a key.
    pub(super) after_key: Option<char>,
    /// Names may hold dashes.
    pub(super) has_dashes: bool,
    /// What begins a name of its own kind: a variable, an attribute, a decorator.
    pub(super) sigils: &'static [char],
    /// `'a` may be a lifetime, and `name!` calls a macro.
    pub(super) is_rust: bool,
    /// Lines that begin with `#` are for the preprocessor.
    pub(super) has_directives: bool,
}

/// What a text is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Words, numbers, strings and comments.
    Code,
    /// Tags, and text between them.
    Markup,
    /// Lines that were added and removed.
    Diff,
}

/// A kind of string.
#[derive(Debug)]
pub(super) struct Quote {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    /// A backslash keeps what follows it from ending the string.
    pub(super) escapes: bool,
    /// It may go on in the next line.
    pub(super) spans_lines: bool,
}

impl Language {
    /// The language that the fence of a code block names.
    pub(super) fn of(info: &str) -> Option<&'static Self> {
        let name = name(info)?.to_ascii_lowercase();
        LANGUAGES.iter().find(|language| language.names.contains(&name.as_str()))
    }

    pub(super) fn is_keyword(&self, word: &str) -> bool {
        self.keywords.split(' ').any(|keyword| match self.ignores_case {
            true => keyword.eq_ignore_ascii_case(word),
            false => keyword == word,
        })
    }
}

/// What the fence of a code block calls its language: `rust` in `rust,ignore`, `python` in `{.python}`.
pub(super) fn name(info: &str) -> Option<&str> {
    let is_apart = |char: char| char.is_whitespace() || matches!(char, ',' | '{' | '}' | '.' | ':');
    info.split(is_apart).find(|word| !word.is_empty())
}

const fn quote(open: &'static str, close: &'static str, escapes: bool, spans_lines: bool) -> Quote {
    Quote { open, close, escapes, spans_lines }
}

/// Spelt so that nobody takes it for the beginning of an address.
const SLASHES: &str = "/\u{2f}";
const DOUBLE: Quote = quote("\"", "\"", true, false);
const SINGLE: Quote = quote("'", "'", true, false);
const BACKTICK: Quote = quote("`", "`", true, true);

/// A language of braces, from which the others are told.
const BASE: Language = Language {
    names: &[],
    shape: Shape::Code,
    line_comments: &[SLASHES],
    block_comment: Some(("/*", "*/")),
    quotes: &[DOUBLE, SINGLE],
    keywords: "",
    ignores_case: false,
    after_key: None,
    has_dashes: false,
    sigils: &[],
    is_rust: false,
    has_directives: false,
};

static LANGUAGES: [Language; 20] = [
    Language {
        names: &["rust", "rs"],
        quotes: &[
            quote("r#\"", "\"#", false, true),
            quote("r\"", "\"", false, true),
            quote("\"", "\"", true, true),
            SINGLE,
        ],
        keywords: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while bool char f32 f64 i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 u128 usize",
        sigils: &['#'],
        is_rust: true,
        ..BASE
    },
    Language {
        names: &["python", "py", "python3", "pycon"],
        line_comments: &["#"],
        block_comment: None,
        quotes: &[quote("\"\"\"", "\"\"\"", true, true), quote("'''", "'''", true, true), DOUBLE, SINGLE],
        keywords: "and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield",
        sigils: &['@'],
        ..BASE
    },
    Language {
        names: &["javascript", "js", "jsx", "mjs", "typescript", "ts", "tsx", "node"],
        quotes: &[DOUBLE, SINGLE, BACKTICK],
        keywords: "abstract any as async await boolean break case catch class const continue debugger declare default delete do else enum export extends false finally for from function get if implements import in instanceof interface keyof let namespace never new null number of private protected public readonly return set static string super switch this throw true try type typeof undefined unknown var void while yield",
        sigils: &['@'],
        ..BASE
    },
    Language {
        names: &[
            "c",
            "h",
            "cpp",
            "c++",
            "cc",
            "cxx",
            "hpp",
            "objc",
            "objective-c",
            "glsl",
            "hlsl",
            "wgsl",
            "cuda",
            "metal",
        ],
        keywords: "alignas auto bool break case catch char class const constexpr continue default delete do double else enum explicit extern false float fn for friend if inline int let long namespace new noexcept nullptr operator override private protected public register return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using var virtual void volatile while size_t uint8_t uint16_t uint32_t uint64_t int8_t int16_t int32_t int64_t",
        has_directives: true,
        ..BASE
    },
    Language {
        names: &["csharp", "cs", "c#"],
        keywords: "abstract as async await base bool break byte case catch char class const continue decimal default delegate do double else enum event false finally float for foreach get if in int interface internal is lock long namespace new null object out override params private protected public readonly record ref return sealed set short static string struct switch this throw true try typeof uint ulong using var virtual void where while yield",
        has_directives: true,
        ..BASE
    },
    Language {
        names: &["java", "kotlin", "kt", "scala", "groovy", "dart"],
        quotes: &[quote("\"\"\"", "\"\"\"", true, true), DOUBLE, SINGLE],
        keywords: "abstract as boolean break by byte case catch char class companion const continue data def default do double else enum extends extension false final finally float for fun if implements import in instanceof int interface internal is lateinit lazy let long match native new null object open override package private protected public record return sealed short static super suspend switch synchronized this throw throws trait true try type val var void volatile when where while with yield",
        sigils: &['@'],
        ..BASE
    },
    Language {
        names: &["go", "golang"],
        quotes: &[DOUBLE, SINGLE, quote("`", "`", false, true)],
        keywords: "any bool break byte case chan const continue default defer else error fallthrough false float32 float64 for func go goto if import int int8 int16 int32 int64 interface iota map nil package range return rune select string struct switch true type uint uint8 uint16 uint32 uint64 uintptr var",
        ..BASE
    },
    Language {
        names: &["swift"],
        quotes: &[quote("\"\"\"", "\"\"\"", true, true), DOUBLE],
        keywords: "actor as async await break case catch class continue default defer do else enum extension fallthrough false fileprivate final for func guard if import in init inout internal is let mutating nil open override private protocol public repeat return self Self static struct subscript super switch throw throws true try typealias var weak where while",
        sigils: &['@', '#'],
        ..BASE
    },
    Language {
        names: &["php"],
        line_comments: &[SLASHES, "#"],
        keywords: "abstract and array as break callable case catch class clone const continue declare default do echo else elseif empty enum extends false final finally fn for foreach function global if implements include instanceof interface isset list match namespace new null or private protected public readonly require require_once return static switch this throw trait true try unset use var while yield",
        sigils: &['$'],
        ..BASE
    },
    Language {
        names: &["ruby", "rb"],
        line_comments: &["#"],
        block_comment: Some(("=begin", "=end")),
        keywords: "alias and begin break case class def defined? do else elsif end ensure extend false for if in include module next nil not or private protected public puts raise redo require rescue retry return self super then true undef unless until when while yield",
        sigils: &['@', ':', '$'],
        ..BASE
    },
    Language {
        names: &["lua"],
        line_comments: &["--"],
        block_comment: Some(("--[[", "]]")),
        keywords: "and break do else elseif end false for function goto if in local nil not or repeat return then true until while",
        ..BASE
    },
    Language {
        names: &[
            "bash",
            "sh",
            "shell",
            "zsh",
            "fish",
            "console",
            "terminal",
            "shellscript",
            "dockerfile",
            "makefile",
            "make",
        ],
        line_comments: &["#"],
        block_comment: None,
        quotes: &[quote("\"", "\"", true, true), quote("'", "'", false, true), quote("`", "`", true, false)],
        keywords: "alias break case cd continue do done echo elif else esac eval exec exit export fi for function if in local printf read return set shift source sudo then trap unset until while FROM RUN COPY ADD CMD ENTRYPOINT ENV ARG WORKDIR EXPOSE USER VOLUME",
        has_dashes: true,
        sigils: &['$'],
        ..BASE
    },
    Language {
        names: &["sql", "sqlite", "postgresql", "postgres", "mysql", "plsql"],
        line_comments: &["--"],
        quotes: &[quote("'", "'", false, true), quote("\"", "\"", false, false)],
        keywords: "add all alter and as asc avg begin between bigint boolean by case cascade check column commit constraint count create cross database date decimal default delete desc distinct drop else end except exists false float foreign from full group having if in index inner insert int integer intersect into is join key left like limit max min not null numeric offset on or order outer over partition primary references returning right rollback select serial set sum table text then timestamp trigger true union unique update using values varchar view when where with",
        ignores_case: true,
        ..BASE
    },
    Language {
        names: &["json", "jsonc", "json5", "jsonl", "ndjson"],
        keywords: "true false null",
        after_key: Some(':'),
        ..BASE
    },
    Language {
        names: &["yaml", "yml"],
        line_comments: &["#"],
        block_comment: None,
        quotes: &[quote("\"", "\"", true, true), quote("'", "'", false, true)],
        keywords: "true false null yes no on off",
        after_key: Some(':'),
        has_dashes: true,
        sigils: &['&', '*'],
        ..BASE
    },
    Language {
        names: &["toml", "ini", "cfg", "conf", "properties", "env", "dotenv"],
        line_comments: &["#", ";"],
        block_comment: None,
        quotes: &[
            quote("\"\"\"", "\"\"\"", true, true),
            quote("'''", "'''", false, true),
            DOUBLE,
            quote("'", "'", false, false),
        ],
        keywords: "true false",
        after_key: Some('='),
        has_dashes: true,
        ..BASE
    },
    Language {
        names: &["html", "xml", "svg", "xhtml", "vue", "svelte", "markup"],
        shape: Shape::Markup,
        line_comments: &[],
        block_comment: Some(("<!--", "-->")),
        quotes: &[quote("\"", "\"", false, true), quote("'", "'", false, true)],
        has_dashes: true,
        ..BASE
    },
    Language {
        names: &["css", "scss", "sass", "less"],
        line_comments: &[],
        keywords: "auto none inherit initial unset revert important",
        after_key: Some(':'),
        has_dashes: true,
        sigils: &['@', '#', '.', '$'],
        ..BASE
    },
    Language {
        names: &["diff", "patch"],
        shape: Shape::Diff,
        line_comments: &[],
        block_comment: None,
        quotes: &[],
        ..BASE
    },
    Language {
        names: &["r", "julia", "jl", "elixir", "perl", "nim"],
        line_comments: &["#"],
        block_comment: None,
        keywords: "begin break const defmodule def do else elseif elsif end false FALSE fn for foreach function global if import in let library local macro module my next NULL nothing our package repeat require return struct sub then true TRUE unless use using where while",
        sigils: &['@', '$'],
        ..BASE
    },
];
