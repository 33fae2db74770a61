#!/usr/bin/env bash
# Hearth's whole interface: starts the four stages of a stack, watches over them, asks them.
#
# `up` leaves a supervisor behind (this script again, in a session of its own).  It sleeps on one
# FIFO, RUNTIME/control, into which everything that happens is written as a line; each stage has a
# small keeper process that starts it and reports its end.  A stage's stdin is its life pipe: the
# supervisor alone holds the other end, so when that is closed, or the supervisor dies in whatever
# way, the stage leaves.  The lock on the runtime folder is an open file (fd 9) that all of them
# share: it is free exactly when the last one has left.
set -euo pipefail
export LC_ALL=C

readonly STAGES=(loader pinner worker scheduler) # in the order of the data
readonly STOP_MS=10000                           # from the order to stop to SIGKILL
readonly MAX_DEATHS=5                            # within a minute, without having been of use
readonly DESCRIPTORS=64                          # a stage needs so many, and so does the supervisor
readonly MAX_FRESH=60                            # restarts within a minute for any other reason

self=$(realpath -- "${BASH_SOURCE[0]}")
root=${self%/*}
build=$(realpath -m -- "${HEARTH_BUILD:-$root/build}")

die() { # exit-code message
	echo "run.sh: $2" >&2
	exit "$1"
}

usage() { # the README has it
	sed -n '/^## Commands/,/^## [^C]/{ /^Exit code/,/^$/{ /./p }; s/^    //p }' "$root/README.md"
}

# -- the command line --

name=default
words=()
model=
declare -A options=() # stage -> its options: words without blanks

take_name() { # words... (every command has --name; the other words go to `words`)
	while (($#)); do
		case $1 in
		--name) (($# > 1)) || die 100 "--name wants a value behind it" && name=$2 && shift ;;
		--name=*) name=${1#*=} ;;
		--) words+=("$@") && break ;;
		*) words+=("$1") ;;
		esac
		shift
	done
	[[ $name =~ ^[A-Za-z0-9._-]{1,32}$ ]] ||
		die 100 "--name $name: want 1 to 32 letters, digits, dots, dashes or underscores"
}

# Which stages take an option; what its value must look like is theirs to say.
take_options() { # words... (of up)
	local value stage takers
	while (($#)); do
		takers=
		case ${1%%=*} in
		--verify) options[loader]+=" $1" ;;
		--device | --vram-mib | --pin-gib) takers=pinner ;;
		--read | --pages | --numa-node | --resident-gib) takers=loader ;;
		--ctx | --cpu-share) takers=worker ;;
		--threads | --profile) takers='loader worker' ;;
		--pin-order) takers='loader pinner' ;;
		--?* | -[!-]*) die 100 "$1: no such option, ./run.sh help names them" ;;
		*)
			[[ $1 != -- ]] || (($# == 1)) || shift # behind it, the model may begin with a dash
			[[ -z $model ]] || die 100 "$1: one word too many, the model is $model"
			model=$(realpath -ms -- "$1")
			;;
		esac
		if [[ -n $takers ]]; then
			[[ $1 == *=* ]] || { (($# > 1)) && set -- "$1=$2" "${@:3}"; } ||
				die 100 "$1 wants a value behind it"
			value=${1#*=}
			[[ -n $value && $value != *[[:space:]]* ]] ||
				die 100 "${1%%=*} '$value': want a value without blanks"
			[[ $1 != --profile=* ]] || value=$(realpath -ms -- "$value")
			for stage in $takers; do options[$stage]+=" ${1%%=*}=$value"; done
		fi
		shift
	done
	[[ -n $model ]] || die 100 "up wants a MODEL.gguf"
}

# -- the runtime folder --

find_folder() {
	local base=${XDG_RUNTIME_DIR:-/tmp}
	dir=$base/hearth-$name
	[[ -n ${XDG_RUNTIME_DIR-} ]] || dir=$base/hearth-$UID-$name
	[[ -d $base && $base == /* ]] || die 100 "XDG_RUNTIME_DIR is $base, want a folder's full path"
	((${#dir} <= 87)) || # with /scheduler.state.pub 107 bytes, the most that a socket's path may have
		die 100 "$dir: too long for a socket's path, want a shorter --name or XDG_RUNTIME_DIR"
}

own_folder() {
	[[ -d $dir && ! -L $dir && -O $dir ]] || die 100 "$dir: not a folder of yours"
}

# Makes the folder and locks it (fd 9); 1: somebody has the lock.
take_folder() {
	while :; do
		mkdir -m 700 -- "$dir" 2>/dev/null || [[ -d $dir ]] || die 111 "$dir: cannot be made"
		own_folder
		chmod 700 -- "$dir"
		exec 9<"$dir" || continue
		flock -n 9 || return 1
		[[ /dev/fd/9 -ef $dir ]] && break # else the last owner removed it just now
	done
	sweep log 2>/dev/null || die 111 "$dir: what stands there is not a stack's, remove it"
}

# Removes what a stack leaves in its folder, and the folder; with "log", all but that.  Under the lock.
sweep() {
	rm -f -- "$dir"/{control,front,work,pinner.lend,loader.fetch} \
		"$dir"/reply.* "$dir"/*.state{,.pub}
	[[ ${1-} == log ]] || { rm -f -- "$dir/log" && rmdir -- "$dir"; }
}

need_build() {
	local program
	for program in "${STAGES[@]}" hearth; do
		[[ -x $build/bin/$program ]] || die 100 "not built: run ./run.sh demo or make"
	done
}

need_up() {
	find_folder
	need_build
	[[ ! -e $dir ]] || own_folder
	[[ -p $dir/control ]] ||
		die 100 "$name is not up: $(last_error "$dir/log" './run.sh up MODEL.gguf starts it')"
}

last_error() { # log else-text (the reason why a stack came down by itself)
	local words
	words=$(grep '^run.sh: error: ' "$1" 2>/dev/null | tail -n 1) || true
	words=${words#run.sh: error: }
	echo "${words:-$2}"
}

# -- the supervisor --

result=0   # its exit code
leaving=   # set once the stack comes down
was_up=    # set once it could answer: from then on a stack that fails leaves its log
partial=   # the beginning of a line
declare -A pid=()     # stage -> its process, 0 until it is known; while its keeper runs
declare -A life=()    # stage -> descriptor of its life pipe
declare -A starts=()  # stage -> how often it was started
declare -A told=()    # stage -> 1: it was told to leave
declare -A served=()  # stage -> 1: it has been of use since its start
declare -A due=()     # stage -> ms: when to start it, or, if alive, to kill it
declare -A times=()   # stage.kind -> ms of its ends within the last minute
declare -A absent=()  # stage -> why it stays away; a stand-in with its board is in its place
declare -A replies=() # stage -> names of the FIFOs that wait for its ready line

now() { # sets $now: milliseconds of the monotonic clock
	local seconds
	read -r seconds _ </proc/uptime
	now=$((10#${seconds/./} * 10))
}

# The keeper of one stage, a process of its own.  stdin is the life pipe, fd 3 the control FIFO.
keep() { # stage
	local fd args status=0 program=("$1" --dir "$dir")
	read -ra args <<<"${options[$1]-}"
	((${starts[$1]} == 1)) || args+=(--restarts "$((starts[$1] - 1))")
	[[ $1 != loader ]] || args+=(-- "$model")
	[[ -z ${absent[$1]-} ]] || program=(hearth absent --dir "$dir") args=(-- "$1" "${absent[$1]}")
	trap - TERM INT
	exec 3>"$dir/control" 8>&- 1>&2
	for fd in "${life[@]}"; do # a sibling's pipe kept open here would hide its end from it
		exec {fd}>&-
	done
	"$build/bin/${program[0]}" "${program[@]:1}" "${args[@]}" <&0 &
	echo "pid $1 $!" >&3
	wait "$!" || status=$?
	echo "left $1 $status" 2>/dev/null >&3 || sweep 2>/dev/null || true
}

start() { # stage
	local fd
	unset "due[$1]" "told[$1]" "served[$1]"
	[[ -n ${absent[$1]-} ]] || starts[$1]=$((${starts[$1]-0} + 1))
	exec {fd}> >(keep "$1")
	pid[$1]=0 life[$1]=$fd
}

stop() { # stage
	local fd=${life[$1]-}
	[[ -n $fd ]] || return 0
	exec {fd}>&-
	unset "life[$1]"
	now
	due[$1]=$((now + STOP_MS))
}

# The last stage in the order of the data goes first; with none left, the supervisor goes.
stop_next() {
	local stage
	for stage in scheduler worker pinner loader; do
		[[ -z ${pid[$stage]-} ]] || { stop "$stage" && return; }
	done
	if [[ -n $was_up && $result != 0 ]]; then sweep log; else sweep; fi
	exit "$result"
}

come_down() { # exit-code reason
	local stage
	[[ -z $leaving ]] || return 0
	leaving=1 result=$1 due=()
	[[ -z $2 ]] || echo "run.sh: error: $2" >&2
	exec 1>&2 # `up` sees the end of its pipe
	for stage in "${!replies[@]}"; do reply "$stage" "the stack comes down: $2"; done
	stop_next
}

reply() { # stage text (to every `restart` that waits for the stage)
	local fifo
	for fifo in ${replies[$1]-}; do
		[[ ! -p $dir/$fifo ]] || echo "$2" 1<>"$dir/$fifo"
	done
	unset "replies[$1]"
}

count() { # stage.kind (sets $n: such ends within the last minute, with the one of now)
	local t kept=()
	now
	for t in ${times[$1]-} "$now"; do
		((now - t >= 60000)) || kept+=("$t")
	done
	times[$1]=${kept[*]} n=${#kept[@]}
}

left() { # stage status
	local stage=$1 status=$2 how="left with status $2" words pause=0
	((status <= 128)) || how="was ended by SIG$(kill -l "$((status - 128))")"
	stop "$stage"
	unset "pid[$stage]" "due[$stage]"
	if [[ -n $leaving ]]; then
		stop_next
		return
	elif [[ -n ${told[$stage]-} ]]; then
		start "$stage"
		return
	fi
	words=$(grep "^$stage: error: " "$dir/log" | tail -n 1) || true
	words=${words#"$stage: error: "}
	if ((status == 100)) && [[ -n $was_up && -z ${absent[$stage]-} ]]; then
		# The file has changed, say; what the others keep warm goes on without it.
		echo "run.sh: warn: $stage stays away until it is restarted: ${words:-$how}" >&2
		reply "$stage" "stays away: ${words:-$how}"
		absent[$stage]=${words:-$how}
		start "$stage"
		return
	elif ((status == 100)); then
		come_down 100 "$stage: ${words:-$how}"
		return
	elif ((status == 0)) || [[ -n ${served[$stage]-} ]]; then
		count "$stage.fresh"
		((n < MAX_FRESH)) || come_down 111 "$stage $how, time $n within a minute"
	else
		count "$stage.died"
		((n < MAX_DEATHS)) ||
			come_down 111 "$stage $how, time $n within a minute${words:+; it said: $words}"
		((n == 1)) || pause=$((50 << (n - 1)))
	fi
	[[ -z $leaving ]] || return 0
	echo "run.sh: info: $stage $how, starts again in $pause ms" >&2
	due[$stage]=$((now + pause))
}

restart_stage() { # stage reply-fifo
	replies[$1]+=" $2"
	unset "absent[$1]"
	if [[ -n $leaving ]]; then
		reply "$1" "the stack comes down"
	elif [[ -n ${pid[$1]-} ]]; then
		told[$1]=1
		stop "$1"
	else
		start "$1"
	fi
}

on_time() { # stage
	if [[ -z ${pid[$1]-} ]]; then
		start "$1"
	else
		echo "run.sh: warn: $1 has not left within $((STOP_MS / 1000)) s, is killed" >&2
		((pid[$1] == 0)) || kill -KILL "${pid[$1]}" || true
		due[$1]=$((now + STOP_MS))
	fi
}

# Sleeps until a line or the nearest due time comes.
next_event() {
	local stage line word value timeout wait=3600000
	now
	for stage in "${!due[@]}"; do
		((due[$stage] - now >= wait)) || wait=$((due[$stage] - now))
	done
	((wait > 0)) || wait=1
	printf -v timeout '%d.%03d' "$((wait / 1000))" "$((wait % 1000))"
	if IFS= read -r -t "$timeout" line <&8; then
		read -r word stage value <<<"$partial$line"
		partial=
		case $word in
		pid) pid[$stage]=$value ;;
		ready) reply "$stage" ready ;;
		served) served[$stage]=1 ;;
		left) left "$stage" "$value" ;;
		restart) restart_stage "$stage" "$value" ;;
		down) come_down 0 "" ;;
		up) was_up=1 ;;
		esac
	else
		partial+=$line # a signal or the time came in the middle of it
	fi
	now
	for stage in "${!due[@]}"; do
		((due[$stage] > now)) || on_time "$stage"
	done
}

supervise() { # words of `up`; fd 9 is the lock, stdout ends when `up` need not wait any longer
	local fd stage
	take_options "$@"
	find_folder
	[[ /dev/fd/9 -ef $dir ]] || die 100 "supervise: is for run.sh's own use"
	for fd in /proc/self/fd/*; do # what the caller of `up` left open is not for the stages
		fd=${fd##*/}
		((fd <= 2 || fd == 9)) || [[ /proc/self/fd/$fd -ef $self ]] || exec {fd}>&-
	done
	cd /
	exec 8<>"$dir/control"
	trap '' PIPE
	trap 'echo down >&8' TERM INT
	for stage in "${STAGES[@]}"; do start "$stage"; done
	while :; do next_event; done
}

# -- commands --

up() { # words...
	local status=0 interrupted='' log control alive folder out ended supervisor waiter=
	take_options "$@"
	find_folder
	need_build
	[[ $(ulimit -n) == unlimited ]] || (($(ulimit -n) >= DESCRIPTORS)) ||
		ulimit -Sn $DESCRIPTORS 2>/dev/null ||
		die 111 "$(ulimit -n) descriptors are allowed, each stage needs $DESCRIPTORS: ulimit -n $DESCRIPTORS"
	take_folder || die 100 "$name is up"
	[[ -e /dev/fd/1 ]] || exec >/dev/null # it was closed
	: >"$dir/log"
	exec {log}<"$dir/log" {out}>&1
	# The waiter is waited for by the end of a pipe: `wait` can miss it when a signal comes.
	trap 'trap "" INT TERM; interrupted=1; kill ${waiter:+"$waiter"} 2>/dev/null || true' INT TERM
	# Made here and kept open: what is said before the supervisor listens is not lost.
	mkfifo -m 600 -- "$dir/control" || die 111 "$dir/control: cannot be made"
	exec {control}<>"$dir/control"
	exec {alive}< <(trap '' INT && exec setsid "$self" supervise --name "$name" "$@" \
		</dev/null 2>>"$dir/log")
	supervisor=$!
	exec {folder}<"$dir" 9<&- # what is left to do with the lock is to see it free
	exec {ended}< <(exec "$build/bin/hearth" wait --dir "$dir" 3>&1 <&"$alive" >&"$out")
	waiter=$!
	[[ -z $interrupted ]] || kill "$waiter" || true
	read -r <&"$ended" || true
	wait "$waiter" || status=$?
	if ((status == 0)); then
		echo up >&"$control"
		exec {control}>&- # or the keepers of a dead supervisor would not see it
		return
	fi
	echo down >&"$control"
	wait "$supervisor" || status=$?
	flock "$folder"
	[[ ! $dir -ef /dev/fd/$folder ]] || sweep 2>/dev/null || true # it could not
	[[ -z $interrupted ]] || die 130 "interrupted, $name is down"
	((status == 100)) || status=111
	die "$status" "$(last_error "/dev/fd/$log" "$name was taken down before it could answer")"
}

down() {
	(($# == 0)) || die 100 "$1: one word too many, down takes --name NAME alone"
	find_folder
	[[ -e $dir ]] || die 100 "$name is not up"
	own_folder
	exec 9<"$dir"
	if ! flock -n 9; then
		[[ ! -p $dir/control ]] || echo down 1<>"$dir/control"
		flock -w 60 9 || die 111 "$name: a stage has not left within 60 s, see $dir/log"
	fi
	# Still there: its supervisor was killed, or it failed.
	[[ ! /dev/fd/9 -ef $dir ]] || sweep 2>/dev/null ||
		die 111 "$name is down, but in $dir is something that is not a stack's"
}

restart() { # stage
	local fifo=reply.$$ fd answer
	[[ $# == 1 && " ${STAGES[*]} " == *" $1 "* ]] || die 100 "restart wants one of ${STAGES[*]}"
	need_up
	mkfifo -m 600 -- "$dir/$fifo"
	exec {fd}<>"$dir/$fifo"
	echo "restart $1 $fifo" 1<>"$dir/control"
	read -r -t 60 answer <&"$fd" || answer='not ready within 60 s'
	rm -f -- "$dir/$fifo"
	[[ $answer == ready ]] || die 111 "$1: $answer"
}

pack() { # model file
	(($# == 2)) || die 100 "pack wants a MODEL.gguf and the FILE to make"
	need_build
	exec "$build/bin/loader" --pack "$2" -- "$1"
}

build() { # words of make
	make -C "$root" --no-print-directory BUILD="$build" "$@"
}

setup() {
	"$root/.ci/packages"
	build -j"$(nproc)" >&2
}

demo() {
	local prompt='In the beginning God created'
	setup
	name=demo-$$
	"$self" up --name "$name" "$root/tests/data/kjv-16x1m.gguf"
	trap '"$self" down --name "$name"' EXIT
	printf '\n%s' "$prompt"
	"$self" ask --name "$name" -n 48 "$prompt"
	printf '\n\n'
	"$self" report --name "$name"
}

command=${1-}
(($# == 0)) || shift
take_name "$@"
case $command in
demo) demo ;;
test) setup && build -j"$(nproc)" check && build check-stack ;;
up | down | restart | pack | supervise) "$command" "${words[@]}" ;;
tune) need_build && exec "$build/bin/hearth" tune "${words[@]}" ;;
ask | status | report | verify) need_up && exec "$build/bin/hearth" "$command" --dir "$dir" "${words[@]}" ;;
-h | --help | help) usage ;;
'') usage >&2 && exit 100 ;;
*) die 100 "$command: no such command, ./run.sh help names them" ;;
esac
