/* dtplan-calibrate-cuda: times kernels and collectives of this host's GPUs, see calibrate.cuh.
 *
 *     dtplan-calibrate-cuda [--out FILE] [--seconds N] [--sustained N] [--gpus N] [--only BLOCK,...]
 *                           [--eager] [--dry-run]
 *
 * With --gpus 1 (default) the kernels of one GPU, with more the collectives among them. --dry-run prints
 * the blocks and how many rows each would measure, and touches no GPU. --eager: collectives without graphs. Exit: 0 done, 1 no row could be
 * measured, 2 usage, 4 no GPU. */
#include "runtime/cuda/calibrate.cuh"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <thread>

#include <unistd.h>

namespace cal {

extern const Block load_blocks[];

void Report::head(const std::string &key, const std::string &json) {
    heads.push_back(text("\"%s\": ", key.c_str()) + json);
}
void Report::row(const std::string &json) {
    rows.push_back(json);
}
void Report::other(const std::string &json) {
    others.push_back(json);
}
void Report::clock(const std::string &json) {
    clocks.push_back(json);
}
void Report::failed(const std::string &block, const std::string &why) {
    std::string clean;

    for (char c : why)
        clean += c == '"' || c == '\\' || c < ' ' ? '\'' : c;
    fprintf(stderr, "%s: %s\n", block.c_str(), clean.c_str());
    failures.push_back(text("{\"block\":\"%s\",\"why\":\"%s\"}", block.c_str(), clean.c_str()));
}

static void put_list(FILE *f, const char *name, const std::vector<std::string> &list) {
    fprintf(f, ",\n\"%s\": [", name);
    for (size_t i = 0; i < list.size(); i++)
        fprintf(f, "%s\n%s", i ? "," : "", list[i].c_str());
    fprintf(f, "]");
}

void Report::flush() const {
    bool to_stdout = options.out == "-";
    std::string part = options.out + ".part";
    FILE *f = to_stdout ? stdout : fopen(part.c_str(), "w");

    if (!f)
        throw Failure(text("cannot write %s", part.c_str()));
    fprintf(f, "{");
    for (size_t i = 0; i < heads.size(); i++)
        fprintf(f, "%s%s", i ? ",\n" : "", heads[i].c_str());
    put_list(f, "rows", rows);
    put_list(f, "other", others);
    put_list(f, "clocks", clocks);
    put_list(f, "failures", failures);
    fprintf(f, "}\n");
    if (to_stdout)
        fflush(f);
    else if (fclose(f) || rename(part.c_str(), options.out.c_str()))
        throw Failure(text("cannot write %s", options.out.c_str()));
}

/* ---- clocks around the blocks ---- */

/* Samples the GPU a few times a second while a block runs. */
class Watch {
  public:
    Watch(Report &r, const char *block, int device) : report(r), name(block) {
        thread = std::thread([this, device] {
            while (!done) {
                Sample s;
                if (nvml_sample(device, &s))
                    samples.push_back(s);
                std::this_thread::sleep_for(std::chrono::milliseconds(200));
            }
        });
    }
    ~Watch() {
        done = true;
        thread.join();
        size_t step = samples.size() / 12 + 1;
        for (size_t i = 0; i < samples.size(); i += step) {
            const Sample &s = samples[i];
            report.clock(text("{\"block\":\"%s\",\"at_s\":%.1f,\"sm_mhz\":%u,\"memory_mhz\":%u,"
                              "\"power_w\":%.0f,\"celsius\":%u,\"reasons\":%llu}",
                              name, s.at_s - samples[0].at_s, s.sm_mhz, s.memory_mhz,
                              s.power_mw * 1e-3, s.celsius, s.reasons));
        }
    }

  private:
    Report &report;
    const char *name;
    std::atomic<bool> done{false};
    std::vector<Sample> samples;
    std::thread thread;
};

/* ---- running ---- */

static bool chosen(const Options &o, const char *name) {
    std::string list = "," + o.only + ",";

    return o.only.empty() || list.find(text(",%s,", name)) != std::string::npos;
}

/* Short blocks first; the load last, since it leaves the chip hot. */
static std::vector<const Block *> blocks_of(const Options &o) {
    std::vector<const Block *> out;

    for (const Block *list :
         {host_blocks, kernel_blocks, gemm_blocks, load_blocks, comm_blocks, overlap_blocks})
        for (const Block *b = list; b->name; b++)
            if ((b->gpus > 1) == (o.gpus > 1) && chosen(o, b->name))
                out.push_back(b);
    return out;
}

static int dry_run(const std::vector<const Block *> &blocks, const Options &o) {
    double shares = 0;

    for (const Block *b : blocks)
        shares += b->share;
    for (const Block *b : blocks)
        printf("%-12s %6.1f s  at most %zu rows\n", b->name, o.seconds * b->share / shares,
               b->planned());
    return 0;
}

static void head(Report &r, std::vector<Bench *> &benches) {
    char date[32];
    time_t now = time(nullptr);
    int runtime = 0, driver_cuda = 0;
    std::string driver;

    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver_cuda);
    r.head("gpu", text("\"%s\"", benches[0]->properties.name));
    r.head("impl", "\"dtplan\"");
    r.head("date", text("\"%s\"", date));
    r.head("cuda", text("\"%d, driver %d\"", runtime, driver_cuda));
    r.head("num_sms", std::to_string(benches[0]->num_sms));
    r.head("l2_bytes", std::to_string(benches[0]->l2_bytes));
    r.head("memory_bytes", std::to_string(benches[0]->properties.totalGlobalMem));
    if (nvml_open(&driver)) {
        r.head("driver", text("\"%s\"", driver.c_str()));
        r.head("power_limit_w", text("%.0f", nvml_power_limit_w(0)));
    }
    try {
        r.head("cublas", gemm_version());
    } catch (const Failure &f) {
        r.failed("cublas", f.what());
    }
}

static void run_block(Context &c, const Block &b) {
    double begin = now_s();
    size_t before = c.report.count();

    try {
        Watch watch(c.report, b.name, c.benches[0]->device);
        b.run(c);
    } catch (const std::exception &e) {
        c.report.failed(b.name, e.what());
    }
    fprintf(stderr, "%-12s %6.1f s, %zu rows\n", b.name, now_s() - begin,
            c.report.count() - before);
    c.report.flush();
}

/* Ends the process, with what was measured, should a GPU never answer. */
static void watchdog(double seconds) {
    std::thread([seconds] {
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
        fprintf(stderr, "dtplan-calibrate-cuda: no answer after %.0f s\n", seconds);
        _exit(1);
    }).detach();
}

static int run(const Options &o) {
    std::vector<const Block *> blocks = blocks_of(o);
    std::vector<std::unique_ptr<Bench>> owned;
    std::vector<Bench *> benches;
    int found = 0;
    double shares = 0, start = now_s();
    Report report(o);

    if (o.dry_run)
        return dry_run(blocks, o);
    if (cudaGetDeviceCount(&found) != cudaSuccess || found < o.gpus) {
        fprintf(stderr, "dtplan-calibrate-cuda: %d of %d GPUs found\n", found, o.gpus);
        return 4;
    }
    watchdog(1.3 * o.seconds + o.sustained_s + 20);
    for (int i = 0; i < o.gpus; i++) {
        owned.push_back(std::make_unique<Bench>(i));
        benches.push_back(owned.back().get());
    }
    head(report, benches);
    for (const Block *b : blocks)
        shares += b->share;
    for (const Block *b : blocks) {
        /* what earlier blocks left over goes to the later ones */
        double left = start + o.seconds - now_s();
        Context c{o, report, benches, now_s() + left * b->share / shares};
        run_block(c, *b);
        shares -= b->share;
        if (cudaDeviceSynchronize() != cudaSuccess)
            break; /* the context is gone; what was measured is written */
    }
    return report.count() ? 0 : 1;
}

static int usage(FILE *f, int code) {
    fprintf(f,
            "usage: dtplan-calibrate-cuda [--out FILE] [--seconds N] [--sustained N] [--gpus N]\n"
            "                             [--only BLOCK,...] [--eager] [--dry-run]\n");
    return code;
}

static int main_of(int argc, char **argv) {
    Options o;

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : nullptr;
        if (!strcmp(argv[i], "--dry-run")) {
            o.dry_run = true;
            continue;
        }
        if (!strcmp(argv[i], "--eager")) {
            o.eager = true;
            continue;
        }
        if (!strcmp(argv[i], "--help"))
            return usage(stdout, 0);
        if (!value)
            return usage(stderr, 2);
        if (!strcmp(argv[i], "--out"))
            o.out = value;
        else if (!strcmp(argv[i], "--seconds"))
            o.seconds = atof(value);
        else if (!strcmp(argv[i], "--sustained"))
            o.sustained_s = atof(value);
        else if (!strcmp(argv[i], "--gpus"))
            o.gpus = atoi(value);
        else if (!strcmp(argv[i], "--only"))
            o.only = value;
        else
            return usage(stderr, 2);
        i++;
    }
    if (o.seconds <= 0 || o.gpus < 1)
        return usage(stderr, 2);
    try {
        return run(o);
    } catch (const std::exception &e) {
        fprintf(stderr, "dtplan-calibrate-cuda: %s\n", e.what());
        return 1;
    }
}

} // namespace cal

int main(int argc, char **argv) {
    return cal::main_of(argc, argv);
}
