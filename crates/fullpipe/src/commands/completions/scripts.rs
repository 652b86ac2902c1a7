//! The functions of the shells. What comes behind `--` is a command of another program, and
//! completed as such, but for `diff`, whose flags stand there.

/// Completes what the readline word is, which ends and begins at `=`, `:` and `@` too.
pub(super) const BASH: &str = r#"_fullpipe() {
    local i last
    local -a words
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- && ${COMP_WORDS[1]} != diff ]]; then
            if declare -F _comp_command_offset >/dev/null; then
                _comp_command_offset $((i + 1))
            elif declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            elif ((COMP_CWORD == i + 1)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$2" | sort -u)
            fi
            return
        fi
    done
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=("")
    last=${words[-1]}
    mapfile -t COMPREPLY < <("$1" completions bash -- "${words[@]}" 2>/dev/null)
    COMPREPLY=("${COMPREPLY[@]#"${last%"$2"}"}")
    [[ ${COMPREPLY[0]-} == *[=/:] ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o bashdefault -o default -o nosort -F _fullpipe fullpipe
"#;

pub(super) const ZSH: &str = r#"#compdef fullpipe
_fullpipe() {
    local i line
    local -a found
    for ((i = 3; i < CURRENT; i++)); do
        if [[ ${words[i]} == -- && ${words[2]} != diff ]]; then
            words=("${(@)words[i+1,-1]}")
            ((CURRENT -= i))
            _normal
            return
        fi
    done
    for line in "${(@f)$("${words[1]}" completions zsh -- "${(@)words[1,CURRENT-1]}" "$PREFIX" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        if [[ $line == *$'\t'* ]]; then
            found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        else
            found+=("${line//:/\\:}")
        fi
    done
    if (($#found)); then
        _describe -V fullpipe found
    else
        _files
    fi
}
if [[ ${funcstack[1]} == _fullpipe ]]; then
    _fullpipe "$@"
else
    compdef _fullpipe fullpipe
fi
"#;

pub(super) const FISH: &str = r"function __fullpipe_command_at
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words)
    and test $words[2] != diff
    and echo $at
end
function __fullpipe_complete
    set -l found (fullpipe completions fish -- (commandline -opc) (commandline -ct) 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c fullpipe -f
complete -c fullpipe -n 'not __fullpipe_command_at >/dev/null' -a '(__fullpipe_complete)'
complete -c fullpipe -n '__fullpipe_command_at >/dev/null' \
    -a '(__fish_complete_subcommand --fcs-skip=(__fullpipe_command_at))'
";
