/*
 * bluebridge/device/pieces.py in native code: the functions of that module, which says what they
 * do. A list of pieces crosses between them in one object, so a piece costs nanoseconds.
 *
 * Memory is reached through the buffers of the memoryviews that were passed, asked for and given
 * back within one call. A memoryview that was released meanwhile, because its guest took the memory
 * back, raises ValueError there; offsets and lengths are compared with its size again.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define TAIL 8
#define RECENT 4 /* regions that are searched among those that an object of views refers to */

typedef unsigned long long u64;

/* -- Runs: address and length of each piece of a guest's memory ------------------------------- */

typedef struct {
    u64 address, length;
} Run;

typedef struct {
    PyObject_VAR_HEAD
    Run items[];
} Runs;

static Py_ssize_t runs_length(PyObject *self)
{
    return Py_SIZE(self);
}

static PyObject *runs_item(PyObject *self, Py_ssize_t index)
{
    if (index < 0 || index >= Py_SIZE(self)) {
        PyErr_SetString(PyExc_IndexError, "no such run");
        return NULL;
    }
    const Run *run = &((Runs *)self)->items[index];
    return Py_BuildValue("(KK)", run->address, run->length);
}

static PySequenceMethods runs_sequence = {.sq_length = runs_length, .sq_item = runs_item};

static PyTypeObject RunsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "bluebridge.device.pieces.Runs",
    .tp_basicsize = sizeof(Runs),
    .tp_itemsize = sizeof(Run),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_as_sequence = &runs_sequence,
};

/* An unsigned 64-bit number; PyErr_Occurred() tells whether it was one. */
static u64 number(PyObject *value)
{
    return PyLong_AsUnsignedLongLong(value);
}

static int is_run(PyObject *item, Run *run)
{
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2) {
        PyErr_SetString(PyExc_TypeError, "a run is an address and a length");
        return -1;
    }
    run->address = number(PyTuple_GET_ITEM(item, 0));
    run->length = number(PyTuple_GET_ITEM(item, 1));
    return PyErr_Occurred() ? -1 : 0;
}

/* Runs in the order of `given`, which is of this type or any sequence; `kept` has to be released. */
static const Run *runs_of(PyObject *given, Py_ssize_t *count, Run **kept)
{
    *kept = NULL;
    if (Py_IS_TYPE(given, &RunsType)) {
        *count = Py_SIZE(given);
        return ((Runs *)given)->items;
    }
    PyObject *fast = PySequence_Fast(given, "runs are a sequence");
    if (fast == NULL)
        return NULL;
    *count = PySequence_Fast_GET_SIZE(fast);
    *kept = PyMem_New(Run, *count + 1);
    int failed = *kept == NULL ? (PyErr_NoMemory(), -1) : 0;
    for (Py_ssize_t i = 0; !failed && i < *count; i++)
        failed = is_run(PySequence_Fast_GET_ITEM(fast, i), &(*kept)[i]);
    Py_DECREF(fast);
    if (failed) {
        PyMem_Free(*kept);
        return *kept = NULL;
    }
    return *kept;
}

/* -- Views: pieces of the memory behind memoryviews ------------------------------------------- */

typedef struct {
    Py_ssize_t base, offset, length;
} Place;

typedef struct {
    PyObject_HEAD
    PyObject *bases; /* list of memoryviews */
    Place *items;
    Py_ssize_t count, room;
} Views;

static void views_dealloc(PyObject *self)
{
    Py_XDECREF(((Views *)self)->bases);
    PyMem_Free(((Views *)self)->items);
    Py_TYPE(self)->tp_free(self);
}

static Py_ssize_t views_length(PyObject *self)
{
    return ((Views *)self)->count;
}

static PyObject *views_item(PyObject *self, Py_ssize_t index)
{
    Views *views = (Views *)self;
    if (index < 0 || index >= views->count) {
        PyErr_SetString(PyExc_IndexError, "no such view");
        return NULL;
    }
    const Place *place = &views->items[index];
    PyObject *base = PyList_GET_ITEM(views->bases, place->base);
    return PySequence_GetSlice(base, place->offset, place->offset + place->length);
}

static PySequenceMethods views_sequence = {.sq_length = views_length, .sq_item = views_item};

static PyTypeObject ViewsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "bluebridge.device.pieces.Views",
    .tp_basicsize = sizeof(Views),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = views_dealloc,
    .tp_as_sequence = &views_sequence,
};

static Views *new_views(Py_ssize_t room)
{
    Views *views = PyObject_New(Views, &ViewsType);
    if (views == NULL)
        return NULL;
    views->count = 0;
    views->room = room;
    views->items = PyMem_New(Place, room + 1);
    views->bases = PyList_New(0);
    if (views->items == NULL || views->bases == NULL) {
        Py_DECREF(views);
        PyErr_NoMemory();
        return NULL;
    }
    return views;
}

static int add_place(Views *views, Py_ssize_t base, u64 offset, u64 length)
{
    if (views->count == views->room) {
        Py_ssize_t room = 2 * views->room + 1;
        Place *items = PyMem_Resize(views->items, Place, room + 1);
        if (items == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        views->items = items;
        views->room = room;
    }
    views->items[views->count++] = (Place){base, (Py_ssize_t)offset, (Py_ssize_t)length};
    return 0;
}

/* The number of `region` among the bases, at the end of which it is put if it is not there yet. */
static Py_ssize_t base_of(Views *views, PyObject *region)
{
    Py_ssize_t count = PyList_GET_SIZE(views->bases);
    for (Py_ssize_t i = count - 1; i >= 0 && i >= count - RECENT; i--)
        if (PyList_GET_ITEM(views->bases, i) == region)
            return i;
    return PyList_Append(views->bases, region) < 0 ? -1 : count;
}

/* -- A side of a copy: where its bytes are, as long as its buffers are held ------------------- */

typedef struct {
    char *at;
    Py_ssize_t length;
} Stretch;

typedef struct {
    Py_buffer *held;
    Py_ssize_t held_count;
    Stretch *items;
    Py_ssize_t count, total;
} Side;

static void close_side(Side *side)
{
    for (Py_ssize_t i = 0; i < side->held_count; i++)
        PyBuffer_Release(&side->held[i]);
    PyMem_Free(side->held);
    PyMem_Free(side->items);
}

static int hold(Side *side, PyObject *object, int flags)
{
    if (PyObject_GetBuffer(object, &side->held[side->held_count], flags) < 0)
        return -1;
    side->held_count++;
    return 0;
}

static int add_stretch(Side *side, char *at, Py_ssize_t length)
{
    if (length > PY_SSIZE_T_MAX - side->total) {
        PyErr_SetString(PyExc_OverflowError, "too many bytes");
        return -1;
    }
    side->items[side->count++] = (Stretch){at, length};
    side->total += length;
    return 0;
}

static int make_room(Side *side, Py_ssize_t held, Py_ssize_t items)
{
    *side = (Side){.held = PyMem_New(Py_buffer, held + 1), .items = PyMem_New(Stretch, items + 1)};
    if (side->held != NULL && side->items != NULL)
        return 0;
    PyErr_NoMemory();
    return -1;
}

static int open_views(Side *side, Views *views, int flags)
{
    Py_ssize_t bases = PyList_GET_SIZE(views->bases);
    if (make_room(side, bases, views->count) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < bases; i++)
        if (hold(side, PyList_GET_ITEM(views->bases, i), flags) < 0)
            return -1;
    for (Py_ssize_t i = 0; i < views->count; i++) {
        const Place *place = &views->items[i];
        const Py_buffer *buffer = &side->held[place->base];
        if (place->offset > buffer->len || place->length > buffer->len - place->offset) {
            PyErr_SetString(PyExc_ValueError, "a view that ends behind its memory");
            return -1;
        }
        if (add_stretch(side, (char *)buffer->buf + place->offset, place->length) < 0)
            return -1;
    }
    return 0;
}

static int open_buffers(Side *side, PyObject *given, int flags)
{
    PyObject *fast = PySequence_Fast(given, "views are a sequence");
    if (fast == NULL) {
        *side = (Side){0};
        return -1;
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    int failed = make_room(side, count, count);
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        failed = hold(side, PySequence_Fast_GET_ITEM(fast, i), flags);
        if (!failed)
            failed = add_stretch(side, side->held[i].buf, side->held[i].len);
    }
    Py_DECREF(fast);
    return failed;
}

/* Hold the memory of `given`; the caller calls `close_side`, after a failure (-1), too. */
static int open_side(Side *side, PyObject *given, int writable)
{
    int flags = writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    if (Py_IS_TYPE(given, &ViewsType))
        return open_views(side, (Views *)given, flags);
    return open_buffers(side, given, flags);
}

/* -- the functions of the module -------------------------------------------------------------- */

static int expect(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%zd arguments, not %zd", wanted, given);
    return -1;
}

/* How many of the ascending numbers are below `limit`. */
static Py_ssize_t below(const u64 *numbers, Py_ssize_t count, u64 limit)
{
    Py_ssize_t low = 0, high = count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (numbers[middle] < limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static PyObject *translated(
    const u64 *starts, const u64 *addresses, Py_ssize_t count, u64 mapped, u64 offset, u64 length)
{
    if (!length || offset > mapped || length > mapped - offset || !count || starts[0] > offset) {
        PyErr_SetString(PyExc_IndexError, "a range outside of the region");
        return NULL;
    }
    u64 end = offset + length;
    Py_ssize_t first = below(starts, count, offset + 1) - 1;
    Py_ssize_t pieces = below(starts, count, end) - first;
    Runs *runs = PyObject_NewVar(Runs, &RunsType, pieces);
    if (runs == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < pieces; i++) {
        Py_ssize_t at = first + i;
        u64 limit = i + 1 < pieces ? starts[at + 1] : end;
        runs->items[i] = (Run){addresses[at] + (offset - starts[at]), limit - offset};
        offset = limit;
    }
    return (PyObject *)runs;
}

static PyObject *translate(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer starts, addresses;
    if (expect(count, 5) < 0)
        return NULL;
    u64 mapped = number(args[2]), offset = number(args[3]), length = number(args[4]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &starts, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[1], &addresses, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&starts);
        return NULL;
    }
    PyObject *found = NULL;
    if (starts.len != addresses.len)
        PyErr_SetString(PyExc_ValueError, "as many addresses as starts");
    else
        found = translated(
            starts.buf, addresses.buf, starts.len / (Py_ssize_t)sizeof(u64), mapped, offset, length);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&addresses);
    return found;
}

/* The region of memory that was used last: its bytes are at addresses `low` to `high`. */
typedef struct {
    u64 low, high;
    Py_ssize_t base;
} Region;

static int no_memory(const Run *run)
{
    PyObject *where = Py_BuildValue("(KK)", run->address, run->length);
    if (where != NULL) {
        PyErr_SetObject(PyExc_LookupError, where);
        Py_DECREF(where);
    }
    return -1;
}

/* Make the region that holds the first byte of `run` the current one. */
static int find(Views *views, PyObject *starts, PyObject *regions, const Run *run, Region *region)
{
    Py_ssize_t low = 0, high = PyList_GET_SIZE(starts);
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        u64 start = number(PyList_GET_ITEM(starts, middle));
        if (PyErr_Occurred())
            return -1;
        if (start <= run->address)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low || low > PyList_GET_SIZE(regions))
        return no_memory(run);
    Py_buffer buffer;
    PyObject *view = PyList_GET_ITEM(regions, low - 1);
    if (PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE) < 0)
        return -1;
    u64 length = (u64)buffer.len;
    PyBuffer_Release(&buffer);
    region->low = number(PyList_GET_ITEM(starts, low - 1));
    if (run->address - region->low >= length)
        return no_memory(run);
    region->high = region->low + length;
    region->base = base_of(views, view);
    return region->base < 0 ? -1 : 0;
}

static int add_run(Views *views, PyObject *starts, PyObject *regions, Run run, Region *region)
{
    if (run.length > 0 - run.address && run.address) /* it would go on at address 0 */
        return no_memory(&run);
    while (run.length) {
        if (run.address < region->low || run.address >= region->high)
            if (find(views, starts, regions, &run, region) < 0)
                return -1;
        u64 room = region->high - run.address;
        u64 part = run.length < room ? run.length : room;
        if (add_place(views, region->base, run.address - region->low, part) < 0)
            return -1;
        run.address += part;
        run.length -= part;
    }
    return 0;
}

static PyObject *views(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (expect(count, 3) < 0)
        return NULL;
    if (!PyList_Check(args[0]) || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "starts and regions are lists");
        return NULL;
    }
    Run *kept;
    Py_ssize_t run_count;
    const Run *runs = runs_of(args[2], &run_count, &kept);
    if (runs == NULL)
        return NULL;
    Views *found = new_views(run_count);
    Region region = {0, 0, 0};
    int failed = found == NULL;
    for (Py_ssize_t i = 0; !failed && i < run_count; i++)
        failed = add_run(found, args[0], args[1], runs[i], &region);
    PyMem_Free(kept);
    if (failed)
        Py_CLEAR(found);
    return (PyObject *)found;
}

static PyObject *size(PyObject *module, PyObject *given)
{
    Side side;
    PyObject *total = NULL;
    if (!open_side(&side, given, 0))
        total = PyLong_FromSsize_t(side.total);
    close_side(&side);
    return total;
}

/* The last bytes by a store of their own, after all others. */
static void store_last(char *target, const char *origin, Py_ssize_t length)
{
    if (length > TAIL) {
        Py_ssize_t body = length - TAIL;
        uint64_t word;
        memmove(target, origin, body);
        __atomic_thread_fence(__ATOMIC_RELEASE);
        memcpy(&word, origin + body, TAIL);
        memcpy(target + body, &word, TAIL);
    } else {
        __atomic_thread_fence(__ATOMIC_RELEASE);
        memmove(target, origin, length);
    }
}

static void move(const Stretch *targets, const Side *source)
{
    Py_ssize_t start = 0, left = source->total;
    for (Py_ssize_t i = 0; i < source->count; i++) {
        Stretch origin = source->items[i];
        while (origin.length) {
            while (start == targets->length) {
                targets++;
                start = 0;
            }
            Py_ssize_t room = targets->length - start;
            Py_ssize_t part = origin.length < room ? origin.length : room;
            left -= part;
            if (left)
                memmove(targets->at + start, origin.at, part);
            else
                store_last(targets->at + start, origin.at, part);
            start += part;
            origin.at += part;
            origin.length -= part;
        }
    }
}

static PyObject *copy(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (expect(count, 2) < 0)
        return NULL;
    Side target, source = {0};
    PyObject *total = NULL;
    if (!open_side(&target, args[0], 1) && !open_side(&source, args[1], 0)) {
        if (source.total > target.total) {
            PyErr_Format(
                PyExc_ValueError, "%zd bytes do not fit in %zd", source.total, target.total);
        } else {
            move(target.items, &source);
            total = PyLong_FromSsize_t(source.total);
        }
    }
    close_side(&target);
    close_side(&source);
    return total;
}

typedef struct {
    const char *before, *after;
    Py_ssize_t before_size, after_size, most;
} Form;

/* Append the first bytes of `run`, and pass over its stretches; the end of what was written. */
static char *pack_run(char *out, const Form *form, const Run *run, const Side *side, Py_ssize_t *at)
{
    uint32_t length = (uint32_t)run->length, kept;
    memcpy(out, form->before, form->before_size);
    out += form->before_size;
    char *words = out;
    out += sizeof(uint64_t) + 2 * sizeof(uint32_t);
    memcpy(out, form->after, form->after_size);
    out += form->after_size;
    char *data = out;
    for (u64 left = run->length; left && *at < side->count; ++*at) {
        const Stretch *stretch = &side->items[*at];
        Py_ssize_t room = form->most - (out - data);
        u64 part = (u64)stretch->length < left ? (u64)stretch->length : left;
        Py_ssize_t taken = part < (u64)room ? (Py_ssize_t)part : room;
        memcpy(out, stretch->at, taken);
        out += taken;
        left -= part;
    }
    kept = (uint32_t)(out - data);
    memcpy(words, &run->address, sizeof(uint64_t));
    memcpy(words + 8, &length, sizeof(uint32_t));
    memcpy(words + 12, &kept, sizeof(uint32_t));
    return out;
}

static PyObject *packed(const Form *form, const Run *runs, Py_ssize_t count, const Side *side)
{
    Py_ssize_t each = form->before_size + 16 + form->after_size + form->most;
    if (count > PY_SSIZE_T_MAX / each)
        return PyErr_NoMemory();
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, count * each);
    if (bytes == NULL)
        return NULL;
    char *out = PyBytes_AS_STRING(bytes);
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        out = pack_run(out, form, &runs[i], side, &at);
    _PyBytes_Resize(&bytes, out - PyBytes_AS_STRING(bytes));
    return bytes;
}

static PyObject *pack(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (expect(count, 6) < 0)
        return NULL;
    Form form;
    Py_ssize_t wanted = PyLong_AsSsize_t(args[2]), run_count;
    form.most = PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred())
        return NULL;
    if (PyBytes_AsStringAndSize(args[4], (char **)&form.before, &form.before_size) < 0
        || PyBytes_AsStringAndSize(args[5], (char **)&form.after, &form.after_size) < 0)
        return NULL;
    if (wanted < 0 || form.most < 0 || form.most > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "how many runs and bytes");
        return NULL;
    }
    Run *kept;
    const Run *runs = runs_of(args[0], &run_count, &kept);
    if (runs == NULL)
        return NULL;
    Side side;
    PyObject *bytes = NULL;
    if (!open_side(&side, args[1], 0))
        bytes = packed(&form, runs, wanted < run_count ? wanted : run_count, &side);
    close_side(&side);
    PyMem_Free(kept);
    return bytes;
}

#define FAST(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef functions[] = {
    FAST(translate), FAST(views), FAST(copy), FAST(pack), {"size", size, METH_O, NULL}, {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "pieces", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_pieces(void)
{
    if (PyType_Ready(&RunsType) < 0 || PyType_Ready(&ViewsType) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    /* A name that annotations of other modules import. */
    if (module != NULL && PyModule_AddObjectRef(module, "Run", (PyObject *)&PyTuple_Type) < 0)
        Py_CLEAR(module);
    return module;
}
