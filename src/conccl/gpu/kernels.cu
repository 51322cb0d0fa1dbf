// Kernels of the probes and of the executor. Every wait in them is bounded by the global timer (ns).

__device__ __forceinline__ unsigned long long now_ns()
{
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

__device__ __forceinline__ unsigned sm_id()
{
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}

// Stay on the SM until released or out of time. smids[CTA] says where; started counts the CTAs that run.
extern "C" __global__ void conccl_hold(
    volatile unsigned* release, unsigned long long limit_ns, unsigned* smids, unsigned* started)
{
    if (threadIdx.x == 0) {
        smids[blockIdx.x] = sm_id();
        const unsigned long long begin = now_ns();
        __threadfence_system();
        atomicAdd(started, 1u);
        while (*release == 0u && now_ns() - begin < limit_ns) {
            __nanosleep(400);
        }
    }
    __syncthreads();
}

// Copy 16-byte words by a fixed number of CTAs. times: first start, last start, last end (ns).
extern "C" __global__ void conccl_copy(
    uint4* __restrict__ destination, const uint4* __restrict__ source, unsigned long long words,
    unsigned* smids, unsigned* started, unsigned long long* times)
{
    if (threadIdx.x == 0) {
        const unsigned long long begin = now_ns();
        smids[blockIdx.x] = sm_id();
        atomicMin(&times[0], begin);
        atomicMax(&times[1], begin);
        __threadfence();
        atomicAdd(started, 1u);
    }
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long word = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; word + 3 * stride < words; word += 4 * stride) {
        const uint4 a = source[word];
        const uint4 b = source[word + stride];
        const uint4 c = source[word + 2 * stride];
        const uint4 d = source[word + 3 * stride];
        destination[word] = a;
        destination[word + stride] = b;
        destination[word + 2 * stride] = c;
        destination[word + 3 * stride] = d;
    }
    for (; word < words; word += stride) {
        destination[word] = source[word];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicMax(&times[2], now_ns());
    }
}

// Go on when so many CTAs of another kernel run, or out of time; stamp is when (ns).
extern "C" __global__ void conccl_await(
    volatile unsigned* started, unsigned wanted, unsigned long long limit_ns, unsigned long long* stamp)
{
    const unsigned long long begin = now_ns();
    while (*started < wanted && now_ns() - begin < limit_ns) {
        __nanosleep(100);
    }
    *stamp = now_ns();
}
