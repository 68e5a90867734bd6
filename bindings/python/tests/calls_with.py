"""Kernels of Triton and Numba that call worlds and volumes: for ``test_device_calls.py``. Each class is one way, with what it needs.

The methods take tensors of torch. Kernels of worlds have one block of ``THREADS`` threads, so that those of all PEs fit on one GPU.
"""

import contextlib

import numpy as np

THREADS = 128
#: Elements that a kernel ``ring`` sends in a round.
PART = 1024


class Triton:
    needs, form = ("triton",), "bitcode"
    #: Arguments of each kernel, for compiling without a launch.
    TYPES = {
        "ring": ("u64", "*i32", "*i32", "*i32", "u64", "i32", "i32", "*i32"),
        "elements": ("u64", "u64", "*i32", "u64", "u64", "*i64", "*i32", "*i32"),
        "add_to_blocks": ("u64", "i32", "i32", "i32", "*i32", "*i32"),
        "permute_blocks": ("u64", "i32", "i32", "*i32", "i32", "*i32", "*i32"),
    }

    def __init__(self, torch):
        import triton_calls
        from warpbell.triton import libraries

        self.torch, self.kernels, self.libraries = torch, triton_calls, libraries()

    @classmethod
    def compile(cls, name, arch):
        """Compiles a kernel: no GPU is needed. Returns its machine code."""
        import triton
        import triton_calls
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
        from warpbell.triton import libraries

        kernel = getattr(triton_calls, name)
        types = dict(zip(kernel.arg_names, (*cls.TYPES[name], "constexpr")))
        source = ASTSource(kernel, types, constexprs={"BLOCK": THREADS})
        made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"extern_libs": libraries(arch), "num_warps": THREADS // 32})
        return made.asm["cubin"]

    def launch(self, name, stream, grid, block, *arguments):
        with self.torch.cuda.stream(stream):
            getattr(self.kernels, name)[(grid,)](*arguments, block, num_warps=THREADS // 32, extern_libs=self.libraries)

    def ring(self, stream, *arguments):
        self.launch("ring", stream, 1, PART, *arguments)

    def elements(self, stream, *arguments):
        # One element for each thread: docs/device-functions.md has the reason.
        self.launch("elements", stream, 1, THREADS, *arguments)

    def add_to_blocks(self, stream, programs, *arguments):
        self.launch("add_to_blocks", stream, programs, PART, *arguments)

    def permute_blocks(self, stream, count, *arguments):
        self.launch("permute_blocks", stream, -(-count // THREADS), THREADS, *arguments)


class Numba:
    needs, form = ("numba.cuda",), "cubin"
    NAMES = ("ring", "elements", "add_to_blocks", "permute_blocks")
    #: Arguments of each kernel, for compiling without a launch.
    TYPES = {
        "ring": "void(uint64, int32[::1], int32[::1], int32[::1], uint64, int64, int64, int32[::1])",
        "elements": "void(uint64, uint64, int32[::1], uint64, uint64, int64[::1], int32[::1], int32[::1])",
        "add_to_blocks": "void(uint64, int64, int64, int64, int32[::1], int32[::1])",
        "permute_blocks": "void(uint64, int64, int64, int32[::1], int64, int32[::1], int32[::1])",
    }

    def __init__(self, torch):
        from numba import cuda

        self.torch, self.cuda = torch, cuda
        functions = self.functions(None)
        self.kernels = {name: cuda.jit(functions[name]) for name in self.NAMES}

    @classmethod
    def compile(cls, name, arch):
        """Compiles a kernel: no GPU is needed. Returns its PTX."""
        from numba import cuda

        return cuda.compile(cls.functions(arch)[name], cls.TYPES[name], device=False, abi="numba", output="ptx", cc=(arch // 10, arch % 10))[0]

    @staticmethod
    def functions(arch):
        # Numba-CUDA still names a function that NumPy 2.5 has no more.
        if not hasattr(np, "row_stack"):
            np.row_stack = np.vstack
        from numba import cuda
        from warpbell.numba import CMP_GE, SIGNAL_ADD, function

        names = "my_pe n_pes team_n_pes putmem_signal_block signal_wait_until_block p_u32 g_u32 getmem_block barrier_all_block team_barrier_block "
        names += "atomic_fetch_add_u64 atomic_add_u64 volume_block_bytes volume_read_block volume_write_block volume_read_warp "
        names += "volume_write_warp volume_flush_block"
        (my_pe, n_pes, team_n_pes, put_signal, wait, put_element, get_element, get, barrier, team_barrier, draw, add, block_bytes, read, write,
         read_warp, write_warp, flush) = (function(f"wbd_{name}", arch) for name in names.split())  # fmt: skip

        def ring(world, source, landing, out, arrived, to, rounds, states):
            thread, threads = cuda.threadIdx.x, cuda.blockDim.x
            for number in range(rounds):
                part = number * PART
                sent = put_signal(world, landing[part:].ctypes.data, source[part:].ctypes.data, 4 * PART, arrived, 1, SIGNAL_ADD, to)
                waited = wait(world, arrived, CMP_GE, number + 1)
                for i in range(part + thread, part + PART, threads):
                    out[i] = landing[i]
                if thread == 0:
                    states[2 * number] = sent
                    states[2 * number + 1] = waited

        def elements(world, team, slots, counter, total, drawn, out, states):
            i = cuda.threadIdx.x
            me = my_pe(world)
            next_pe = (me + 1) % n_pes(world)
            slot = slots[i:].ctypes.data
            drawn[i] = draw(world, counter, 1, 0)
            add(world, total, i, 0)
            put_element(world, slot, 1000 * me + i, next_pe)
            arrived = barrier(world)
            out[i] = slots[i]
            out[THREADS + i] = get_element(world, slot, next_pe)
            got = get(world, out[2 * THREADS :].ctypes.data, slots.ctypes.data, 4 * THREADS, next_pe)
            left = team_barrier(team, 0)
            if i == 0:
                states[0] = arrived
                states[1] = got
                states[2] = left
                states[3] = team_n_pes(team)

        def add_to_blocks(view, source, target, count, buffer, states):
            program, thread = cuda.blockIdx.x, cuda.threadIdx.x
            elements_each = count * block_bytes(view) // 4
            part = program * elements_each
            address = buffer[part:].ctypes.data
            state = read(view, source + program * count, count, address)
            for i in range(part + thread, part + elements_each, cuda.blockDim.x):
                buffer[i] += 1
            state |= write(view, target + program * count, count, address)
            state |= flush(view)
            if thread == 0:
                states[program] = state

        # Every lane makes the calls: those behind the end only help.
        def permute_blocks(view, source, target, order, count, buffer, states):
            i = cuda.grid(1)
            wanted = i < count
            number = order[i] if wanted else 0
            # A difference of signed and unsigned numbers would be a float: the place is a slice.
            place = buffer[(i if wanted else 0) * (block_bytes(view) // 4) :].ctypes.data
            state = read_warp(view, source + number, wanted, place)
            state |= write_warp(view, target + i, wanted, place)
            if wanted:
                states[i] = state

        return {"ring": ring, "elements": elements, "add_to_blocks": add_to_blocks, "permute_blocks": permute_blocks}

    def launch(self, name, stream, grid, *arguments):
        tensors = [self.cuda.as_cuda_array(one, sync=False) if hasattr(one, "data_ptr") else one for one in arguments]
        own = self.cuda.external_stream(stream.cuda_stream)
        with self.cuda.gpus[stream.device.index] if stream.device.index else contextlib.nullcontext():
            self.kernels[name][grid, THREADS, own](*tensors)

    def ring(self, stream, *arguments):
        self.launch("ring", stream, 1, *arguments)

    def elements(self, stream, *arguments):
        self.launch("elements", stream, 1, *arguments)

    def add_to_blocks(self, stream, programs, *arguments):
        self.launch("add_to_blocks", stream, programs, *arguments)

    def permute_blocks(self, stream, count, *arguments):
        self.launch("permute_blocks", stream, -(-count // THREADS), *arguments)


ALL = (Triton, Numba)
