//! Reads the declarations of `host/rdma/sys/bindings.rs` and writes the same questions three times: to these
//! declarations, to rdma-sys and to the C headers. Every declaration of the file becomes a question. A declaration that
//! this program does not understand fails the build.

use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use syn::{Fields, GenericArgument, ImplItem, Item, PathArguments, ReturnType, Type, TypeBareFn};

const BINDINGS: &str = "../../host/rdma/sys/bindings.rs";

/// Types that rdma-sys 0.3 does not declare; `src/lib.rs` fails to compile when it does. They are compared with C
/// alone.
const LACKING: [&str; 12] = [
    "ib_uverbs_query_port_flags",
    "mlx5_wqe_av",
    "mlx5dv_ah",
    "mlx5dv_context_attr",
    "mlx5dv_context_attr_flags",
    "mlx5dv_devx_uar",
    "mlx5dv_devx_umem",
    "mlx5dv_devx_umem_in",
    "mlx5dv_devx_umem_in_mask",
    "mlx5dv_obj",
    "mlx5dv_obj_type",
    "mlx5dv_pd",
];

/// Names that rdma-sys gave to members which C leaves without one, and one that it spells differently.
const RENAMED: [(&str, &str, &str); 4] = [
    ("ibv_send_wr", "__bindgen_anon_1", "imm_data_invalidated_rkey_union"),
    ("ibv_send_wr", "__bindgen_anon_2", "bind_mw_tso_union"),
    ("ibv_send_wr", "invalidate_rkey", "invalidated_rkey"),
    ("ibv_wc", "__bindgen_anon_1", "imm_data_invalidated_rkey_union"),
];

/// Declarations of the file.
#[derive(Default)]
struct Declared {
    /// Structs and unions with their fields.
    layouts: BTreeMap<String, Vec<(String, Type)>>,
    unions: BTreeSet<String>,
    /// Structs without content: they are used behind pointers. By value they would change the size of a struct that
    /// contains them.
    opaque: BTreeSet<String>,
    /// Enumerations with their constants.
    constants: BTreeMap<String, Vec<String>>,
    aliases: Vec<String>,
    functions: Vec<(String, TypeBareFn)>,
}

impl Declared {
    fn read(text: &str) -> Self {
        let mut this = Self::default();
        for item in syn::parse_file(text).expect("Rust").items {
            match item {
                Item::Struct(s) if matches!(s.fields, Fields::Unnamed(_)) => {
                    this.constants.entry(s.ident.to_string()).or_default();
                }
                Item::Struct(s) => this.fields(s.ident.to_string(), &s.fields),
                Item::Union(u) => {
                    this.unions.insert(u.ident.to_string());
                    this.fields(u.ident.to_string(), &Fields::Named(u.fields));
                }
                Item::Type(t) => this.aliases.push(t.ident.to_string()),
                // Implementations that combine flags (`BitOr`) or load a library have no data.
                Item::Impl(i) => {
                    let of = i.self_ty.to_token_stream().to_string();
                    for item in i.items {
                        if let ImplItem::Const(c) = item {
                            this.constants.entry(of.clone()).or_default().push(c.ident.to_string());
                        }
                    }
                }
                Item::Use(_) => {}
                other => panic!("no question is known for `{}`", other.to_token_stream()),
            }
        }
        this
    }

    fn fields(&mut self, name: String, fields: &Fields) {
        let named: Vec<(String, Type)> =
            fields.iter().map(|f| (f.ident.as_ref().expect("a name").to_string(), f.ty.clone())).collect();
        if named.iter().any(|(n, _)| n == "__library") {
            for (name, ty) in named {
                match ty {
                    Type::BareFn(f) => self.functions.push((name, f)),
                    _ => assert_eq!(name, "__library"),
                }
            }
        } else if named.iter().any(|(n, _)| n == "_unused") {
            self.opaque.insert(name);
        } else {
            self.layouts.insert(name, named);
        }
    }

    /// Collects every field of a type by its path, including those of nested types.
    fn paths(&self, of: &str, before: &[String], out: &mut Vec<(Vec<String>, Type)>) {
        for (name, ty) in &self.layouts[of] {
            let path = [before, &[name.clone()]].concat();
            let nested = ty.to_token_stream().to_string();
            if nested.contains("__bindgen_ty_") {
                self.paths(&nested, &path, out);
            }
            out.push((path, ty.clone()));
        }
    }

    /// Returns the type's name in C.
    fn tag(&self, name: &str) -> String {
        let kind = match name {
            _ if self.aliases.iter().any(|a| a == name) => "",
            _ if self.unions.contains(name) => "union ",
            _ if self.layouts.contains_key(name) || self.opaque.contains(name) => "struct ",
            _ if self.constants.contains_key(name) => "enum ",
            _ => panic!("C has no name for `{name}`"),
        };
        format!("{kind}{name}")
    }

    /// Returns a type in C.
    fn c(&self, ty: &Type) -> String {
        match ty {
            Type::Ptr(p) if p.const_token.is_some() => format!("const {} *", self.c(&p.elem)),
            Type::Ptr(p) => format!("{} *", self.c(&p.elem)),
            Type::Path(p) => match p.path.segments.last().expect("a name").ident.to_string().as_str() {
                "c_int" => "int".to_owned(),
                "c_uint" => "unsigned int".to_owned(),
                "c_char" => "char".to_owned(),
                "c_void" => "void".to_owned(),
                "bool" => "bool".to_owned(),
                "usize" => "size_t".to_owned(),
                "off_t" => "off_t".to_owned(),
                number @ ("u8" | "u16" | "u32" | "u64") => format!("uint{}_t", &number[1..]),
                name => self.tag(name),
            },
            other => panic!("C has no type for `{}`", other.to_token_stream()),
        }
    }

    /// Returns a function type in C, around the text in its middle.
    fn c_function(&self, middle: &str, f: &TypeBareFn) -> String {
        let arguments: Vec<String> = f.inputs.iter().map(|a| self.c(&a.ty)).collect();
        let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
        let result = match &f.output {
            ReturnType::Default => "void".to_owned(),
            ReturnType::Type(_, ty) => self.c(ty),
        };
        format!("{result} ({middle})({arguments})")
    }
}

/// Returns the function type in `Option<unsafe extern "C" fn(...)>`.
fn pointed(ty: &Type) -> Option<&TypeBareFn> {
    let Type::Path(p) = ty else { return None };
    let last = p.path.segments.last().filter(|s| s.ident == "Option")?;
    let PathArguments::AngleBracketed(a) = &last.arguments else { return None };
    match a.args.first()? {
        GenericArgument::Type(Type::BareFn(f)) => Some(f),
        _ => None,
    }
}

/// Returns a path of fields in C: members without a name are left out, and names that avoid keywords of Rust get their
/// C spelling.
fn c_path(path: &[String]) -> String {
    let named = path.iter().filter(|p| !p.starts_with("__bindgen_anon_"));
    named.map(|p| p.strip_suffix('_').unwrap_or(p)).collect::<Vec<_>>().join(".")
}

fn reference_path(of: &str, path: &[String]) -> String {
    let renamed = |p: &String| RENAMED.iter().find(|(t, n, _)| *t == of && n == p).map(|r| r.2.to_owned());
    path.iter().map(|p| renamed(p).unwrap_or_else(|| p.clone())).collect::<Vec<_>>().join(".")
}

fn main() {
    println!("cargo:rerun-if-changed={BINDINGS}");
    println!("cargo:rerun-if-changed=build.rs");
    let declared = Declared::read(&std::fs::read_to_string(BINDINGS).expect("the committed declarations"));
    let (mut ours, mut theirs, mut c) = (String::new(), String::new(), String::new());
    let (mut our_numbers, mut their_numbers, mut c_numbers) = (String::new(), String::new(), String::new());
    let (mut lacking, mut prototypes) = (Vec::new(), String::new());
    let w = |out: &mut String, line: String| writeln!(out, "{line}").expect("memory");

    for name in declared.layouts.keys().filter(|n| !n.contains("__bindgen_ty_")) {
        let there = !LACKING.contains(&name.as_str());
        let tag = declared.tag(name);
        w(&mut ours, format!("whole!({name:?}, ours::{name}),"));
        w(&mut c, format!("{{ \"{name}\", 0, sizeof({tag}), _Alignof({tag}) }},"));
        match there {
            true => w(&mut theirs, format!("whole!({name:?}, rdma_sys::{name}),")),
            false => lacking.push(name),
        }
        let mut paths = Vec::new();
        declared.paths(name, &[], &mut paths);
        for (path, ty) in paths {
            // A member without a name is identified by its contents.
            if path.last().is_some_and(|p| p.starts_with("__bindgen_anon_")) {
                continue;
            }
            let (rust, inside) = (path.join("."), c_path(&path));
            let member = format!("(({tag} *)0)->{inside}");
            w(&mut ours, format!("field!(\"{name}.{inside}\", ours::{name}, {rust}),"));
            w(
                &mut c,
                format!(
                    "{{ \"{name}.{inside}\", offsetof({tag}, {inside}), sizeof({member}), _Alignof(__typeof__({member})) }},"
                ),
            );
            if there {
                let rust = reference_path(name, &path);
                w(&mut theirs, format!("field!(\"{name}.{inside}\", rdma_sys::{name}, {rust}),"));
            }
            if let Some(f) = pointed(&ty) {
                let f = declared.c_function("*", f);
                w(
                    &mut prototypes,
                    format!(
                        "_Static_assert(__builtin_types_compatible_p(__typeof__({member}), {f}), \"{name}.{inside}\");"
                    ),
                );
            }
        }
    }
    for name in &declared.aliases {
        w(&mut ours, format!("whole!({name:?}, ours::{name}),"));
        w(&mut c, format!("{{ \"{name}\", 0, sizeof({name}), _Alignof({name}) }},"));
        match LACKING.contains(&name.as_str()) {
            false => w(&mut theirs, format!("whole!({name:?}, rdma_sys::{name}),")),
            true => lacking.push(name),
        }
    }
    for (name, constants) in &declared.constants {
        let there = !LACKING.contains(&name.as_str());
        w(&mut ours, format!("whole!({name:?}, ours::{name}),"));
        w(&mut c, format!("{{ \"{name}\", 0, sizeof(enum {name}), _Alignof(enum {name}) }},"));
        if !there {
            lacking.push(name);
        }
        for constant in constants {
            w(&mut our_numbers, format!("(\"{name}::{constant}\", number(ours::{name}::{constant})),"));
            w(&mut c_numbers, format!("{{ \"{name}::{constant}\", (uint32_t){constant} }},"));
            if there {
                w(&mut their_numbers, format!("(\"{name}::{constant}\", number(rdma_sys::{name}::{constant})),"));
            }
        }
    }
    assert_eq!(lacking.len(), LACKING.len(), "LACKING names what is not declared; these are: {lacking:?}");
    for (name, f) in &declared.functions {
        w(&mut prototypes, format!("{};", declared.c_function(name, f)));
    }

    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let absent: String = lacking.iter().map(|n| format!("pub struct {n};\nimpl Absent for {n} {{}}\n")).collect();
    let asked: String = lacking.iter().map(|n| format!("is_absent::<{n}>();\n")).collect();
    let list: Vec<_> = lacking.iter().map(|n| format!("{n:?}")).collect();
    let names: Vec<_> = declared.functions.iter().map(|(n, _)| format!("{n:?}")).collect();
    let generated = format!(
        "pub fn ours() -> Vec<Layout> {{ vec![\n{ours}] }}\n\
         pub fn theirs() -> Vec<Layout> {{ vec![\n{theirs}] }}\n\
         pub fn our_numbers() -> Vec<(&'static str, u32)> {{ vec![\n{our_numbers}] }}\n\
         pub fn their_numbers() -> Vec<(&'static str, u32)> {{ vec![\n{their_numbers}] }}\n\
         pub const LACKING: &[&str] = &[{}];\n\
         pub const FUNCTIONS: &[&str] = &[{}];\n\
         mod absent {{\nuse super::Absent;\n{absent}}}\n\
         pub fn lacking_is_lacking() {{\nuse absent::*;\n{{\n#[allow(unused_imports)]\nuse rdma_sys::*;\n{asked}}}\n}}\n",
        list.join(", "),
        names.join(", "),
    );
    std::fs::write(out.join("generated.rs"), generated).expect("the output folder");
    let source = out.join("headers.c");
    let text = format!(
        "#include <infiniband/verbs.h>\n#include <infiniband/mlx5dv.h>\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\
         {prototypes}\
         _Static_assert((uintptr_t)__VERBS_ABI_IS_EXTENDED == UINTPTR_MAX, \"the mark of an extended context\");\n\
         const struct {{ const char *name; size_t offset, size, align; }} c_layouts[] = {{\n{c}{{ 0 }} }};\n\
         const struct {{ const char *name; uint32_t value; }} c_numbers[] = {{\n{c_numbers}{{ 0 }} }};\n"
    );
    std::fs::write(&source, text).expect("the output folder");
    cc::Build::new().file(&source).std("gnu11").compile("headers");
}
