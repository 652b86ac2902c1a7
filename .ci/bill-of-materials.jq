# Crates of the program (`shipped-crates.jq`), Cargo.lock as text → a bill of materials in the format of CycloneDX.

def component($sums): {
  type: "library", "bom-ref": .reference, name, version,
  licenses: [{expression: (.license | gsub("/"; " OR "))}],
  purl: "pkg:cargo/\(.name)@\(.version)"
} + if $sums[.reference] then {hashes: [{alg: "SHA-256", content: $sums[.reference]}]} else {} end;

([$lock | capture("name = \"(?<name>.+)\"\nversion = \"(?<version>.+)\"\nsource = .+\nchecksum = \"(?<sum>.+)\""; "g")
  | {"\(.name)@\(.version)": .sum}] | add) as $sums
| {
    bomFormat: "CycloneDX", specVersion: "1.6", version: 1,
    metadata: {
      timestamp: $date,
      component: (.[] | select(.name == "fullpipe") | component($sums) | .type = "application")
    },
    components: map(select(.name != "fullpipe") | component($sums)),
    dependencies: map({ref: .reference, dependsOn: .uses})
  }
