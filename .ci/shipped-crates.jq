# What `cargo metadata` says, and `cargo tree` without its branches as $tree → the crates that the program is made of, or
# is built by, each with those that it uses. Features that only other programs of the workspace ask for are in the
# former alone, edges that can be read in the latter not.

def reference: "\(.name)@\(.version)";

([$tree | splits("\n") | capture("^(?<name>\\S+) v(?<version>\\S+)") | {(reference): true}] | add) as $shipped
| (.packages | INDEX(.id)) as $packages
| [.resolve.nodes[] | $packages[.id] + {uses: [
    .deps[] | select(any(.dep_kinds[]; .kind != "dev")) | $packages[.pkg] | reference | select($shipped[.])
  ] | sort}]
| map({
    reference: reference, name, version, license, uses,
    registry: (.source != null), folder: (.manifest_path | rtrimstr("/Cargo.toml"))
  } | select($shipped[.reference]))
| sort_by(.reference)
