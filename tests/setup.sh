# setup.sh: sourced by ./dtplan and tests/run, with `root` set to the top of the source tree.
# Installs what the build needs and builds; everything it says goes to stderr.
# shellcheck shell=bash disable=SC2154

setup_say() { printf 'dtplan: %s\n' "$*" >&2; }

# Debian package of a pkg-config module that CMakeLists.txt asks for.
setup_package_of_module() {
    case $1 in
    libcjson) echo libcjson-dev ;;
    gsl) echo libgsl-dev ;;
    cunit) echo libcunit1-dev ;;
    zlib) echo zlib1g-dev ;;
    sqlite3) echo libsqlite3-dev ;;
    expat) echo libexpat1-dev ;;
    yaml-0.1) echo libyaml-dev ;;
    numa) echo libnuma-dev ;;
    libprotobuf-c) echo libprotobuf-c-dev protobuf-c-compiler ;;
    *) echo "lib$1-dev" ;;
    esac
}

# Modules of the pkg_check_modules lines: "REQUIRED" or "optional", then the module.
setup_modules() {
    awk '/^[ \t]*pkg_check_modules\(/ {
        sub(/^[^(]*\(/, ""); sub(/\).*/, ""); need = "optional"
        for (i = 2; i <= NF; i++)
            if ($i == "REQUIRED") need = $i
            else if ($i != "IMPORTED_TARGET" && $i != "QUIET") {
                sub(/[<>=].*/, "", $i); print need, $i
            }
    }' "$root/CMakeLists.txt"
}

setup_has() { command -v "$1" >/dev/null 2>&1; }

# Sets `needed` (without these nothing can be built) and `wanted` (tests and optional parts).
setup_missing() {
    needed="" wanted=""
    setup_has cmake || needed+=" cmake"
    setup_has ninja || setup_has make || needed+=" ninja-build"
    setup_has cc || setup_has gcc || [ -n "${CC:-}" ] || needed+=" gcc"
    [ -e /usr/include/stdio.h ] || needed+=" libc6-dev"
    setup_has pkg-config || needed+=" pkg-config"
    local need module packages
    while read -r need module; do
        setup_has pkg-config && pkg-config --exists "$module" 2>/dev/null && continue
        packages=$(setup_package_of_module "$module")
        if [ "$need" = REQUIRED ]; then needed+=" $packages"; else wanted+=" $packages"; fi
    done < <(setup_modules)
    # opened at run time by what computes on the CPU: run, check, calibrate
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -qF libopenblas.so.0 || wanted+=" libopenblas0"
}

# setup_install PACKAGE...: true if apt-get installed them all.
setup_install() {
    local as=() log
    if ! setup_has apt-get || [ -n "${DTPLAN_NO_INSTALL:-}" ]; then
        return 1
    fi
    if [ "$(id -u)" != 0 ]; then
        setup_has sudo && sudo -n true 2>/dev/null || return 1
        as=(sudo -n)
    fi
    setup_say "installing with apt-get: $*"
    local apt=("${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y
        -o DPkg::Lock::Timeout=300)
    log=$(mktemp) || return 1
    if "${apt[@]}" install --no-install-recommends "$@" >"$log" 2>&1 ||
        { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "$@"; } >"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    tail -n 15 "$log" >&2
    rm -f "$log"
    return 1
}

# setup_packages all|needed: installs what is missing; false, with the list, if that cannot be done.
# With `needed` a missing optional package is no reason to install, but it is taken along.
setup_packages() {
    setup_missing
    [ -n "$needed" ] || { [ "$1" = all ] && [ -n "$wanted" ]; } || return 0
    # shellcheck disable=SC2086
    setup_install $needed $wanted && return 0
    setup_missing
    if [ -n "$needed" ]; then
        setup_say "these packages are missing and cannot be installed from here:$needed"
        setup_say "install them with: sudo apt-get install$needed$wanted"
        return 1
    fi
    [ -z "$wanted" ] || setup_say "not installed, so some tests will not run:$wanted"
}

# setup_configure FOLDER CMAKE-ARGUMENTS...: configures .build/FOLDER.
setup_configure() {
    local build=$root/.build/$1 generator=()
    shift
    # a tree that was moved or copied cannot use the build folder of its old place
    if [ -e "$build/CMakeCache.txt" ] &&
        ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$build/CMakeCache.txt"; then
        rm -rf "$build"
    fi
    [ -e "$build/CMakeCache.txt" ] || ! setup_has ninja || generator=(-G Ninja)
    mkdir -p "$build" || return 1
    cmake "$@" -S "$root" -B "$build" "${generator[@]}" >"$build/configure.log" 2>&1 && return 0
    tail -n 30 "$build/configure.log" >&2
    return 1
}

# setup_build FOLDER [TARGET...]: builds; all that the compiler says stays in .build/FOLDER/build.log.
setup_build() {
    local build=$root/.build/$1 targets=()
    shift
    [ $# = 0 ] || targets=(--target "$@")
    cmake --build "$build" -j "$(nproc)" "${targets[@]}" >"$build/build.log" 2>&1 && return 0
    grep -E -A4 'error[ :]|undefined reference|FAILED' "$build/build.log" |
        grep -v -e ' -c ' -e '^--' | head -n 40 >&2
    return 1
}

# Nothing that goes into the binary is newer than the stamp of its last build. The stamp holds the
# path of the tree, so that a moved tree counts as stale.
setup_is_fresh() {
    local stamp=$root/.build/release/dtplan.stamp built_at=
    [ -x "$root/.build/release/dtplan" ] && [ -e "$stamp" ] || return 1
    read -r built_at <"$stamp"
    [ "$built_at" = "$root" ] || return 1
    [ -z "$(find "$root/CMakeLists.txt" "$root/.cmake" "$root/sim" "$root/hw" "$root/models" \
        "$root/traces" "$root/planner" "$root/runtime" \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
        -o -name '*.cmake' -o -name CMakeLists.txt -o -type d \) -newer "$stamp" -print -quit 2>/dev/null)" ]
}

setup_release_locked() {
    local build=$root/.build/release
    setup_is_fresh && return 0
    setup_packages needed || return 1
    if [ -e "$build/dtplan" ]; then
        setup_say "building again, sources have changed"
    else
        setup_say "building in release mode (only now)"
    fi
    # the time of the start counts: what is edited during the build makes it stale again
    printf '%s\n' "$root" >"$root/.build/release.started"
    if ! setup_configure release -DCMAKE_BUILD_TYPE=Release || ! setup_build release dtplan; then
        setup_say "the build failed; its logs are in $build"
        return 1
    fi
    mv "$root/.build/release.started" "$build/dtplan.stamp"
}

# Builds .build/release/dtplan if it is missing or stale. One process builds, others wait for it.
setup_release() {
    local build=$root/.build/release lock status
    if ! mkdir -p "$build" 2>/dev/null || ! [ -w "$build" ]; then
        [ -x "$build/dtplan" ] && return 0
        setup_say "cannot write to $build, and there is no binary in it"
        return 1
    fi
    exec {lock}>"$root/.build/release.lock"
    flock "$lock"
    setup_release_locked
    status=$?
    exec {lock}>&-
    return $status
}

# Builds the CUDA module and the program that calibrates GPUs, where the build found nvcc; else the program
# says what is missing. It takes minutes: only who asks for it waits.
setup_cuda() {
    local build=$root/.build/release lock status
    [ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || return 0 # without a GPU: dtplan says so
    [ -w "$build" ] && cmake --build "$build" --target help | grep -q 'dtplan_cuda' || return 0
    exec {lock}>"$root/.build/release.lock"
    flock "$lock"
    [ -e "$build/libdtplan_cuda.so" ] || setup_say "building the CUDA module (only now, some minutes)"
    setup_build release dtplan_cuda dtplan-calibrate-cuda
    status=$?
    exec {lock}>&-
    return $status
}
