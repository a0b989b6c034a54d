"""What the conformance suite asks of a server by name: its tools, prompts and resources.

A tool is written once for both eras of the protocol: `call.ask` (calls.py) puts its questions to the
client in the way of the era. Names, texts and schemas are the suite's.
"""

import json
import time

TOOLS_CHANGED = "notifications/tools/list_changed"
PROMPTS_CHANGED = "notifications/prompts/list_changed"
RESOURCE_UPDATED = "notifications/resources/updated"

# Tools: functions of (call, arguments) that return a text, a whole result, or nothing.

STRING, BOOLEAN = {"type": "string"}, {"type": "boolean"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA=="
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}


def text_content(text):
    return {"type": "text", "text": text}


def embedded(uri, mime_type, text):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": text}}


def elicitation(message, properties, required=None):
    schema = {"type": "object", "properties": properties,
              "required": list(properties) if required is None else required}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(prompt, max_tokens=100):
    messages = [{"role": "user", "content": text_content(prompt)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": max_tokens}}


NAME_FORM = elicitation("What is your name?", {"name": STRING})
OK_FORM = elicitation("Please confirm", {"ok": BOOLEAN})
ROOTS = {"method": "roots/list", "params": {}}
THREE_KINDS = {"user_name": NAME_FORM, "greeting": sampling("Generate a greeting", 50), "client_roots": ROOTS}
DEFAULTS_FORM = elicitation("Please review", {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True}}, [])
OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
ENUMS_FORM = elicitation("Please choose", {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option 1", "Option 2"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}}}, [])


def constant(*content, **rest):
    return lambda call, arguments: {"content": list(content), **rest}


def asking(build, said="Received", stateful=False):
    """A tool that puts requests, made of its arguments, to the client and says what came back."""
    return lambda call, arguments: f"{said}: {json.dumps(call.ask(build(arguments), stateful))}"


def asking_for(said="Received", stateful=False, **requests):
    return asking(lambda arguments: requests, said, stateful)


def ask_on_stream(call, arguments):
    call.reply.open_stream()
    call.progress(1, 2)
    return f"User response: {json.dumps(call.ask({'confirm': OK_FORM})['confirm'])}"


def ask_twice(call, arguments):
    first = call.ask({"step1": elicitation("Step 1: What is your name?", {"name": STRING})}, True)
    second = call.ask({"step2": elicitation("Step 2: What is your favorite color?", {"color": STRING})}, True)
    return f"Received: {json.dumps({**first, **second})}"


def ask_what_is_declared(call, arguments):
    declared = {key: request for key, request in THREE_KINDS.items() if call.can_ask(request)}
    return f"Received: {json.dumps(call.ask(declared or THREE_KINDS))}"


def log_three_times(call, arguments):
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        call.log("info", message)
        time.sleep(0.05)
    return "Tool with logging executed successfully"


def report_progress(call, arguments):
    for done in (0, 50, 100):
        call.progress(done, 100)
        time.sleep(0.05)
    return "Tool with progress executed successfully"


def reconnect(call, arguments):
    call.hang_up()
    time.sleep(0.1)
    return "Reconnection test completed successfully"


def toggling(name, notification):
    return lambda call, arguments: call.server.toggle(name, notification)


def update_resource(call, arguments):
    call.server.publish(RESOURCE_UPDATED, {"uri": "test://watched-resource"})


def echo(call, arguments):
    return f"Received: {json.dumps(arguments)}"


PROMPT_SCHEMA = {"required": ["prompt"], "properties": {"prompt": STRING}}
MESSAGE_SCHEMA = {"required": ["message"], "properties": {"message": STRING}}
HEADER_SCHEMA = {"required": ["region", "priority"], "properties": {
    "region": {"type": "string", "x-mcp-header": "Region"},
    "priority": {"type": "integer", "x-mcp-header": "Priority"},
    "verbose": {"type": "boolean", "x-mcp-header": "Verbose"}, "query": STRING}}
JSON_SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object",
                          "properties": {"street": STRING, "city": STRING}}},
    "properties": {"name": STRING, "address": {"$ref": "#/$defs/address"}, "phone": STRING, "email": STRING,
                   "contactMethod": {"type": "string", "enum": ["phone", "email"]}},
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]}, "else": {"required": ["email"]}, "additionalProperties": False}

TOOLS = {}


def tool(name, description, run, schema=None):
    input_schema = {"type": "object", "properties": {}, **(schema or {})}
    TOOLS[name] = ({"name": name, "description": description, "inputSchema": input_schema}, run)


tool("test_simple_text", "Answers with a text.",
     constant(text_content("This is a simple text response for testing.")))
tool("test_image_content", "Answers with an image.", constant(IMAGE))
tool("test_audio_content", "Answers with a sound.", constant(AUDIO))
tool("test_embedded_resource", "Answers with a resource.", constant(
    embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")))
tool("test_multiple_content_types", "Answers with a text, an image and a resource.", constant(
    text_content("Multiple content types test:"), IMAGE,
    embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')))
tool("test_error_handling", "Always fails.", constant(
    text_content("This tool intentionally returns an error for testing"), isError=True))
tool("test_tool_with_logging", "Sends three log messages, if wanted.", log_three_times)
tool("test_logging_tool", "Sends three log messages, if wanted.", log_three_times)
tool("test_tool_with_progress", "Reports progress three times.", report_progress)
tool("test_reconnection", "Hangs up before it answers, where streams can be resumed.", reconnect)
tool("test_trigger_tool_change", "Puts test_dynamic_tool on the list, or takes it off again.",
     toggling("test_dynamic_tool", TOOLS_CHANGED))
tool("test_dynamic_tool", "Comes and goes with test_trigger_tool_change.",
     constant(text_content("I am here.")))
tool("test_trigger_prompt_change", "Puts test_dynamic_prompt on the list, or takes it off again.",
     toggling("test_dynamic_prompt", PROMPTS_CHANGED))
tool("test_trigger_resource_update", "Reports a change of test://watched-resource.", update_resource)
tool("test_sampling", "Asks the client's model.", asking(lambda arguments: {
    "completion": sampling(arguments["prompt"])}, "LLM response"), PROMPT_SCHEMA)
tool("test_elicitation", "Asks the user.", asking(lambda arguments: {
    "user": elicitation(arguments["message"], {"username": STRING, "email": STRING})},
    "User response"), MESSAGE_SCHEMA)
tool("test_streaming_elicitation", "Asks the user, always on a stream.", ask_on_stream)
tool("test_missing_capability", "Needs sampling.", asking_for(completion=sampling("Say something.")))
tool("test_elicitation_sep1034_defaults", "Asks with a default for each primitive type.",
     asking_for("Elicitation completed", form=DEFAULTS_FORM))
tool("test_elicitation_sep1330_enums", "Asks with each kind of enumeration.",
     asking_for("Elicitation completed", form=ENUMS_FORM))
tool("test_input_required_result_elicitation", "Needs a name.", asking_for("Hello", user_name=NAME_FORM))
tool("test_input_required_result_sampling", "Needs the client's model.",
     asking_for(capital_question=sampling("What is the capital of France?")))
tool("test_input_required_result_list_roots", "Needs the client's roots.", asking_for(client_roots=ROOTS))
tool("test_input_required_result_request_state", "Needs a confirmation with its state.",
     asking_for("state-ok", stateful=True, confirm=OK_FORM))
tool("test_input_required_result_tampered_state", "Needs a confirmation with its state intact.",
     asking_for("state-ok", stateful=True, confirm=OK_FORM))
tool("test_input_required_result_multiple_inputs", "Needs three inputs at once.",
     asking_for(stateful=True, **THREE_KINDS))
tool("test_input_required_result_multi_round", "Needs two inputs, one after the other.", ask_twice)
tool("test_input_required_result_capabilities", "Asks only what the client declared.", ask_what_is_declared)
tool("test_header_parameters", "Has parameters that are mirrored into HTTP headers.", echo, HEADER_SCHEMA)
tool("json_schema_2020_12_tool", "Has features of JSON Schema 2020-12.", echo, JSON_SCHEMA_2020_12)


# Prompts: functions of (call, arguments) that return the contents of their messages.

PROMPTS = {}


def prompt(name, description, build, *arguments):
    listed = [{"name": argument, "required": True} for argument in arguments]
    PROMPTS[name] = ({"name": name, "description": description, "arguments": listed}, build)


prompt("test_simple_prompt", "A text.", lambda call, arguments: [
    text_content("This is a simple prompt for testing.")])
prompt("test_prompt_with_arguments", "A text with two arguments in it.", lambda call, arguments: [
    text_content("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'".format(**arguments))], "arg1", "arg2")
prompt("test_prompt_with_embedded_resource", "A resource and a text.", lambda call, arguments: [
    embedded(arguments["resourceUri"], "text/plain", "Embedded resource content for testing."),
    text_content("Please process the embedded resource above.")], "resourceUri")
prompt("test_prompt_with_image", "An image and a text.", lambda call, arguments: [
    IMAGE, text_content("Please analyze the image above.")])
prompt("test_input_required_result_prompt", "A text that the user completes.", lambda call, arguments: [
    text_content(json.dumps(call.ask({
        "user_context": elicitation("What context should the prompt use?", {"context": STRING})})))])
prompt("test_dynamic_prompt", "Comes and goes with test_trigger_prompt_change.", lambda call, arguments: [
    text_content("I am here.")])

RESOURCES = {
    "test://static-text": ("text/plain", {"text": "This is the content of the static text resource."}),
    "test://static-binary": ("image/png", {"blob": PNG}),
    "test://watched-resource": ("text/plain", {"text": "This resource can be watched."})}
TEMPLATE = {"uriTemplate": "test://template/{id}/data", "name": "template", "description": "Data by id.",
            "mimeType": "application/json"}
