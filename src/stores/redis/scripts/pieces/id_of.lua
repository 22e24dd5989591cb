local function four_bytes(hex, from)
    return tonumber(string.sub(hex, from, from + 7), 16)
end

-- Converts an id of 32 hexadecimal digits to 16 bytes, as Redisson stores ids.
local function id_of(hex)
    return struct.pack('>I4I4I4I4', four_bytes(hex, 1), four_bytes(hex, 9), four_bytes(hex, 17), four_bytes(hex, 25))
end
