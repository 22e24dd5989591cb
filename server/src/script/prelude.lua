-- Prepares the environment of scripts: read-only globals and the table `redis`.
--
-- The argument is a table of functions in Rust. Returns the function that runs a script.
local native = ...
local error, pcall, rawget, rawset = error, pcall, rawget, rawset
local setmetatable, getmetatable, tostring, type, xpcall = setmetatable, getmetatable, tostring, type, xpcall
local loadstring, resume, concat, sub, find = loadstring, coroutine.resume, table.concat, string.sub, string.find
local READ_ONLY = 'Attempt to modify a readonly table'

-- The content of each read-only table.
local behind = setmetatable({}, {__mode = 'k'})

local function refuse_change()
    error(READ_ONLY, 2)
end

local function protected(content)
    local shown = setmetatable({}, {__index = content, __newindex = refuse_change, __metatable = false})
    behind[shown] = content
    return shown
end

-- Converts an error as scripts see it: an error table becomes its text.
local function seen(is_done, ...)
    if is_done then
        return true, ...
    end
    local failure = native.seen((...))
    if type(failure) == 'table' and type(failure.err) == 'string' then
        failure = failure.err
    end
    return false, failure
end

local redis = {
    LOG_DEBUG = 0,
    LOG_VERBOSE = 1,
    LOG_NOTICE = 2,
    LOG_WARNING = 3,
    REPL_NONE = 0,
    REPL_AOF = 1,
    REPL_SLAVE = 2,
    REPL_REPLICA = 2,
    REPL_ALL = 3,
    REDIS_VERSION = '7.0.15',
    REDIS_VERSION_NUM = 0x0007000f,
    sha1hex = native.sha1hex,
    log = native.log,
    setresp = native.setresp,
    set_repl = function() end,
    replicate_commands = function()
        return true
    end,
    breakpoint = function()
        return false
    end,
    debug = function() end,
}

function redis.error_reply(...)
    local text = ...
    if select('#', ...) ~= 1 or type(text) ~= 'string' then
        return {err = 'ERR wrong number or type of arguments'}
    end
    text = sub(text, 1, 1) == '-' and sub(text, 2) or text
    return {err = find(text, ' ', 1, true) and text or 'ERR ' .. text}
end

function redis.status_reply(...)
    local text = ...
    if select('#', ...) ~= 1 or type(text) ~= 'string' then
        return {err = 'ERR wrong number or type of arguments'}
    end
    return {ok = text}
end

local function unsupported(name)
    return setmetatable({}, {
        __metatable = false,
        __newindex = refuse_change,
        __index = function()
            error(name .. ' is not supported by this server', 2)
        end,
    })
end

math.random, math.randomseed = native.random, native.randomseed

local globals = {
    _VERSION = _VERSION,
    assert = assert,
    bit = protected(native.bit),
    cjson = unsupported('cjson'),
    cmsgpack = unsupported('cmsgpack'),
    collectgarbage = collectgarbage,
    error = error,
    gcinfo = gcinfo,
    ipairs = ipairs,
    math = protected(math),
    next = next,
    pairs = pairs,
    rawequal = rawequal,
    redis = protected(redis),
    select = select,
    string = protected(string),
    struct = protected(native.struct),
    table = protected(table),
    tonumber = tonumber,
    tostring = tostring,
    type = type,
    unpack = unpack,
}

function globals.pcall(...)
    return seen(pcall(...))
end

-- The handler runs after `pcall` has returned. If the count hook raises an error, Lua would not count the instructions of a
-- handler that runs at once.
function globals.xpcall(work, handler)
    local function ended(is_done, ...)
        if is_done then
            return true, ...
        end
        return false, handler(native.seen((...)))
    end
    return ended(pcall(work))
end

coroutine.resume = function(...)
    return seen(resume(...))
end
globals.coroutine = protected(coroutine)

function globals.rawget(content, name)
    return rawget(behind[content] or content, name)
end

function globals.rawset(content, name, value)
    if behind[content] then
        error(READ_ONLY, 0)
    end
    return rawset(content, name, value)
end

function globals.setmetatable(content, meta)
    if behind[content] then
        error(READ_ONLY, 0)
    end
    return setmetatable(content, meta)
end

function globals.getmetatable(content)
    return not behind[content] and getmetatable(content) or nil
end

-- The interpreter does not validate bytecode, so bytecode is refused.
function globals.loadstring(text, ...)
    if type(text) == 'string' and sub(text, 1, 1) == '\27' then
        return nil, 'attempt to load chunk with wrong mode'
    end
    return loadstring(text, ...)
end

function globals.load(read, name)
    local parts = {}
    repeat
        local part = read()
        parts[#parts + 1] = part
    until not part or part == ''
    return globals.loadstring(concat(parts), name or '=(load)')
end

setmetatable(globals, {
    __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
})
globals._G = protected(globals)
local of_strings = getmetatable('')
of_strings.__index, of_strings.__metatable = globals.string, false

local handler = native.handler
local function run(script, keys, arguments, call, protected_call)
    rawset(globals, 'KEYS', keys)
    rawset(globals, 'ARGV', arguments)
    redis.call, redis.pcall = call, protected_call
    return xpcall(script, handler)
end

return run, globals._G
